//! What we ask of the operating system: cores to stay on, processor time, memory in use.
//!
//! On systems other than Linux threads are not pinned and figures that are not known are left
//! out; the tables say so.

use std::time::Duration;

use anyhow::{Result, bail};

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

/// Does something on a thread that stays on one core. Processes that are started there stay on it
/// as well.
pub(crate) fn on_core<T: Send>(
    core: Option<usize>,
    work: impl FnOnce() -> Result<T> + Send,
) -> Result<T> {
    std::thread::scope(|threads| {
        let pinned = threads.spawn(|| {
            if let Some(core) = core {
                pin(core);
            }
            work()
        });
        pinned.join().unwrap_or_else(|_| bail!("a thread of the measurement has panicked"))
    })
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
    resident_bytes_of(std::process::id())
}

/// Bytes of memory that another process occupies.
#[cfg(target_os = "linux")]
pub(crate) fn resident_bytes_of(process: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{process}/statm")).ok()?;
    let pages: u64 = text.split_whitespace().nth(1)?.parse().ok()?;
    Some(pages * u64::try_from(rustix::param::page_size()).ok()?)
}

/// Bytes of memory of this process that no file is behind, counted page by page. The cheaper
/// figure may be some hundred pages off, which is much for a small table.
#[cfg(target_os = "linux")]
pub(crate) fn anonymous_bytes() -> Option<u64> {
    kibibytes(&std::fs::read_to_string("/proc/self/smaps_rollup").ok()?, "Anonymous:")
}

/// Bytes of memory that processes can still have.
#[cfg(target_os = "linux")]
pub(crate) fn available_bytes() -> Option<u64> {
    kibibytes(&std::fs::read_to_string("/proc/meminfo").ok()?, "MemAvailable:")
}

/// The bytes in the line that begins with this name.
#[cfg(target_os = "linux")]
fn kibibytes(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1_024)
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
pub(crate) fn resident_bytes_of(_process: u32) -> Option<u64> {
    None
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn anonymous_bytes() -> Option<u64> {
    None
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn available_bytes() -> Option<u64> {
    None
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn processor() -> Option<String> {
    None
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_by_its_name() {
        let text = "Rss:   12 kB\nAnonymous:        8 kB\nAnonHugePages:   0 kB\n";
        assert_eq!(kibibytes(text, "Anonymous:"), Some(8_192));
        assert_eq!(kibibytes(text, "Swap:"), None);
        assert!(anonymous_bytes() > Some(0));
        assert!(available_bytes() > Some(0));
    }
}
