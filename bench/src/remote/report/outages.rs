//! The table of outages.

use std::fmt::{Result, Write as _};

use crate::measure::percentiles;
use crate::measure::summary;
use crate::remote::outage::{
    CALLERS, CAPACITY, OutageLog, Phase, Scenario, Script, TAKES, TIMEOUT,
};
use crate::report::cell;

pub(super) fn write(
    text: &mut String,
    outages: &[(Scenario, OutageLog)],
    script: Script,
) -> Result {
    writeln!(
        text,
        "A server that goes away for {} ms and comes back: {CALLERS} callers with a pause of 1 ms \
         after each decision, ours under a guard with a timeout of {} ms, its breaker and rule \
         local. All of {} repeats together; a call belongs to the phase in which it ended.\n",
        script.away.as_millis(),
        TIMEOUT.as_millis(),
        script.repeats,
    )?;
    writeln!(
        text,
        "| server | phase | decisions | by the failure rule | p50 us | p99 us | max us | longer \
         than 1 ms |"
    )?;
    writeln!(text, "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |")?;
    for (scenario, log) in outages {
        for phase in Phase::ALL {
            let mut nanos = log.nanos(phase);
            if nanos.is_empty() {
                continue;
            }
            let [p50, p99, max] = percentiles(&mut nanos, [50, 99, 100]);
            write!(text, "| {} | {} ", scenario.name(), phase.name())?;
            write!(text, "| {} | {} ", nanos.len(), log.degraded(phase))?;
            writeln!(text, "| {p50:.1} | {p99:.1} | {max:.0} | {} |", log.long(phase))?;
        }
    }
    writeln!(
        text,
        "\n| server | calls that the store failed, per outage | ms from when the server answers \
         to the first shared decision | to the last one by the failure rule | exact afterwards |"
    )?;
    writeln!(text, "| --- | ---: | --- | --- | --- |")?;
    for (scenario, log) in outages {
        let failed = log.in_vain / (script.repeats as u64).max(1);
        let (first, last) = (summary(&log.first_shared, 0), summary(&log.last_degraded, 0));
        let exact = if log.exact { "yes" } else { "no" };
        write!(text, "| {} | {failed} ", scenario.name())?;
        writeln!(text, "| {} | {} | {exact} |", cell(&first), cell(&last))?;
    }
    writeln!(
        text,
        "\nExact afterwards: of {TAKES} takes at once by two nodes on a capacity of {CAPACITY}, \
         {CAPACITY} were allowed, each time, and none of them by the failure rule."
    )
}
