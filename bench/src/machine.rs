//! What we ask of the operating system: cores to stay on, processor time, memory in use.
//!
//! On systems other than Linux threads are not pinned and figures that are not known are left
//! out; the tables say so.

use std::time::Duration;

/// Cores that this process may run on; empty where threads cannot be pinned.
#[cfg(target_os = "linux")]
pub(crate) fn cores() -> Vec<usize> {
    use rustix::thread::{CpuSet, sched_getaffinity};
    let Ok(allowed) = sched_getaffinity(None) else { return Vec::new() };
    (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core)).collect()
}

/// Keeps the calling thread on one core.
#[cfg(target_os = "linux")]
pub(crate) fn pin(core: usize) {
    use rustix::thread::{CpuSet, sched_setaffinity};
    let mut set = CpuSet::new();
    set.set(core);
    // A core that was taken away meanwhile shows in the share of processor time.
    let _ = sched_setaffinity(None, &set);
}

/// Processor time that the calling thread has had.
#[cfg(target_os = "linux")]
pub(crate) fn processor_time() -> Option<Duration> {
    use rustix::time::{ClockId, clock_gettime};
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Some(Duration::new(time.tv_sec.try_into().ok()?, time.tv_nsec.try_into().ok()?))
}

/// Processor time that all threads of this process have had.
#[cfg(target_os = "linux")]
pub(crate) fn own_processor_time() -> Option<Duration> {
    use rustix::time::{ClockId, clock_gettime};
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Some(Duration::new(time.tv_sec.try_into().ok()?, time.tv_nsec.try_into().ok()?))
}

/// Processor time that the first thread of another process has had.
#[cfg(target_os = "linux")]
pub(crate) fn processor_time_of(process: u32) -> Option<Duration> {
    let text = std::fs::read_to_string(format!("/proc/{process}/schedstat")).ok()?;
    Some(Duration::from_nanos(text.split_whitespace().next()?.parse().ok()?))
}

/// Processor time that all threads of another process and of its children have had.
#[cfg(target_os = "linux")]
pub(crate) fn processor_time_of_family(process: u32) -> Option<Duration> {
    let mut time = Duration::ZERO;
    let mut family = vec![process];
    while let Some(member) = family.pop() {
        for thread in std::fs::read_dir(format!("/proc/{member}/task")).ok()? {
            let thread = thread.ok()?.path();
            // A thread that ends meanwhile has had little.
            let read = |name| std::fs::read_to_string(thread.join(name)).unwrap_or_default();
            let nanos = read("schedstat").split_whitespace().next().and_then(|n| n.parse().ok());
            time += Duration::from_nanos(nanos.unwrap_or(0));
            family.extend(
                read("children").split_whitespace().filter_map(|id| id.parse::<u32>().ok()),
            );
        }
    }
    Some(time)
}

/// Processor time that everybody together has had since the machine was started, to the nearest
/// hundredth of a second.
#[cfg(target_os = "linux")]
pub(crate) fn processor_time_of_all() -> Option<Duration> {
    let text = std::fs::read_to_string("/proc/stat").ok()?;
    let mut ticks = text.lines().next()?.split_whitespace().skip(1).map(str::parse::<u64>);
    let [user, nice, system] = [ticks.next()?.ok()?, ticks.next()?.ok()?, ticks.next()?.ok()?];
    Some(Duration::from_millis((user + nice + system) * 10))
}

/// Lets this process, and those that it starts, open as many files as it is permitted to.
#[cfg(target_os = "linux")]
pub(crate) fn raise_file_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // Where this is refused, connections fail and say why.
    let _ = setrlimit(Resource::Nofile, limit);
}

/// Bytes of memory that this process occupies.
#[cfg(target_os = "linux")]
pub(crate) fn resident_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = text.split_whitespace().nth(1)?.parse().ok()?;
    Some(pages * u64::try_from(rustix::param::page_size()).ok()?)
}

/// The name that the processor gives itself.
#[cfg(target_os = "linux")]
pub(crate) fn processor() -> Option<String> {
    let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn cores() -> Vec<usize> {
    Vec::new()
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn pin(_core: usize) {}

#[cfg(not(target_os = "linux"))]
pub(crate) fn processor_time() -> Option<Duration> {
    None
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn own_processor_time() -> Option<Duration> {
    None
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn processor_time_of(_process: u32) -> Option<Duration> {
    None
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn processor_time_of_family(_process: u32) -> Option<Duration> {
    None
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn processor_time_of_all() -> Option<Duration> {
    None
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn raise_file_limit() {}

#[cfg(not(target_os = "linux"))]
pub(crate) fn resident_bytes() -> Option<u64> {
    None
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn processor() -> Option<String> {
    None
}
