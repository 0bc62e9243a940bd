//! Operating system functions: pinning threads, processor time, memory.
//!
//! On systems other than Linux, threads are not pinned and unknown values are left out; the tables
//! say so.

use std::time::Duration;

use anyhow::{Result, bail};

/// Cores that this process may run on; empty where threads cannot be pinned.
#[cfg(target_os = "linux")]
pub(crate) fn cores() -> Vec<usize> {
    use rustix::thread::{CpuSet, sched_getaffinity};
    let Ok(allowed) = sched_getaffinity(None) else { return Vec::new() };
    (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core)).collect()
}

/// Pins the calling thread to a core.
#[cfg(target_os = "linux")]
pub(crate) fn pin(core: usize) {
    use rustix::thread::{CpuSet, sched_setaffinity};
    let mut set = CpuSet::new();
    set.set(core);
    // If this fails, the share of processor time shows it.
    let _ = sched_setaffinity(None, &set);
}

/// Runs `work` on a thread pinned to a core. Child processes started there inherit the pinning.
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
        pinned.join().unwrap_or_else(|_| bail!("a measuring thread panicked"))
    })
}

/// Processor time of the calling thread.
#[cfg(target_os = "linux")]
pub(crate) fn processor_time() -> Option<Duration> {
    use rustix::time::{ClockId, clock_gettime};
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Some(Duration::new(time.tv_sec.try_into().ok()?, time.tv_nsec.try_into().ok()?))
}

/// Processor time of all threads of this process.
#[cfg(target_os = "linux")]
pub(crate) fn own_processor_time() -> Option<Duration> {
    use rustix::time::{ClockId, clock_gettime};
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Some(Duration::new(time.tv_sec.try_into().ok()?, time.tv_nsec.try_into().ok()?))
}

/// Processor time of the main thread of another process.
#[cfg(target_os = "linux")]
pub(crate) fn processor_time_of(process: u32) -> Option<Duration> {
    let text = std::fs::read_to_string(format!("/proc/{process}/schedstat")).ok()?;
    Some(Duration::from_nanos(text.split_whitespace().next()?.parse().ok()?))
}

/// Processor time of all threads of another process and its children.
#[cfg(target_os = "linux")]
pub(crate) fn processor_time_of_family(process: u32) -> Option<Duration> {
    let mut time = Duration::ZERO;
    let mut family = vec![process];
    while let Some(member) = family.pop() {
        for thread in std::fs::read_dir(format!("/proc/{member}/task")).ok()? {
            let thread = thread.ok()?.path();
            // A thread that has just ended is ignored.
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

/// Processor time of all processes since boot, in steps of a hundredth of a second.
#[cfg(target_os = "linux")]
pub(crate) fn processor_time_of_all() -> Option<Duration> {
    let text = std::fs::read_to_string("/proc/stat").ok()?;
    let mut ticks = text.lines().next()?.split_whitespace().skip(1).map(str::parse::<u64>);
    let [user, nice, system] = [ticks.next()?.ok()?, ticks.next()?.ok()?, ticks.next()?.ok()?];
    Some(Duration::from_millis((user + nice + system) * 10))
}

/// Raises the limit of open files to its maximum, for this process and its children.
#[cfg(target_os = "linux")]
pub(crate) fn raise_file_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // If this fails, connections fail later with an error.
    let _ = setrlimit(Resource::Nofile, limit);
}

/// Resident memory of this process in bytes.
#[cfg(target_os = "linux")]
pub(crate) fn resident_bytes() -> Option<u64> {
    resident_bytes_of(std::process::id())
}

/// Resident memory of another process in bytes.
#[cfg(target_os = "linux")]
pub(crate) fn resident_bytes_of(process: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{process}/statm")).ok()?;
    let pages: u64 = text.split_whitespace().nth(1)?.parse().ok()?;
    Some(pages * u64::try_from(rustix::param::page_size()).ok()?)
}

/// Anonymous memory of this process in bytes, counted by page. The cheaper `statm` may be off by
/// some hundred pages, which matters for a small table.
#[cfg(target_os = "linux")]
pub(crate) fn anonymous_bytes() -> Option<u64> {
    kibibytes(&std::fs::read_to_string("/proc/self/smaps_rollup").ok()?, "Anonymous:")
}

/// Available memory of the system in bytes.
#[cfg(target_os = "linux")]
pub(crate) fn available_bytes() -> Option<u64> {
    kibibytes(&std::fs::read_to_string("/proc/meminfo").ok()?, "MemAvailable:")
}

/// Parses the line with this name, in bytes.
#[cfg(target_os = "linux")]
fn kibibytes(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1_024)
}

/// The model name of the processor.
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
