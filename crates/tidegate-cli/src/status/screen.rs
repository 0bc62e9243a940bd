//! The state of a server as text for a terminal.

use std::fmt::Write as _;

use super::overview::{Limit, Overview, Provider, Store};

/// Formats the state, without a final line break.
pub(super) fn text(overview: &Overview) -> String {
    let mut text = String::new();
    // Writing to a String does not fail.
    let _ = write_server(&mut text, overview);
    let _ = write_limits(&mut text, &overview.limits);
    let _ = write_providers(&mut text, &overview.providers);
    for warning in &overview.warnings {
        let _ = write!(text, "\nwarning: {warning}");
    }
    text
}

fn write_server(text: &mut String, overview: &Overview) -> std::fmt::Result {
    let Overview { admin, status, version, revision, listeners, .. } = overview;
    let uptime = duration(overview.uptime_ms);
    write!(text, "tidegate {version} at {admin}: {status}, up {uptime}, revision {revision}")?;
    for reason in &overview.reasons {
        write!(text, "\nnot ready: {}: {}", reason.code, reason.detail)?;
    }
    let listeners = listeners.iter().map(|(name, address)| format!("{name} {address}"));
    write!(text, "\nlisteners: {}", listeners.collect::<Vec<_>>().join(", "))?;
    let Store { url, degraded, keys, max_keys } = &overview.store;
    let health = if *degraded { "unavailable, failure rules decide" } else { "ok" };
    write!(text, "\nstore: {url}, {health}")?;
    if let (Some(keys), Some(max)) = (keys, max_keys) {
        write!(text, ", {keys} of {max} keys")?;
    }
    Ok(())
}

fn write_limits(text: &mut String, limits: &[Limit]) -> std::fmt::Result {
    let width = limits.iter().map(|limit| limit.name.len()).max().unwrap_or(0).max(5);
    write!(text, "\n\n{:width$} {:>12} {:>12} {:>8}", "limit", "allowed", "denied", "errors")?;
    for Limit { name, allowed, denied, errors } in limits {
        write!(text, "\n{name:width$} {allowed:>12} {denied:>12} {errors:>8}")?;
    }
    Ok(())
}

/// Writes providers with something to say in a table, and the names of the others in a line.
fn write_providers(text: &mut String, providers: &[Provider]) -> std::fmt::Result {
    let (idle, busy): (Vec<_>, Vec<_>) = providers.iter().partition(|it| it.is_idle());
    if !busy.is_empty() {
        let width = busy.iter().map(|it| it.name.len()).max().unwrap_or(0).max(8);
        write!(
            text,
            "\n\n{:width$} {:>8} {:>10} {:>10} {:>6} {:>9}  quota used",
            "provider", "waiting", "in flight", "holds", "429s", "breaker"
        )?;
        for provider in busy {
            write_provider(text, provider, width)?;
        }
    }
    if !idle.is_empty() {
        let names: Vec<_> = idle.iter().map(|it| it.name.as_str()).collect();
        write!(text, "\n\nidle providers: {}", names.join(", "))?;
    }
    Ok(())
}

fn write_provider(text: &mut String, provider: &Provider, width: usize) -> std::fmt::Result {
    let Provider { name, waiting, in_flight, holds, upstream_429, .. } = provider;
    let in_flight = match provider.concurrency_limit {
        Some(limit) => format!("{in_flight}/{limit}"),
        None => in_flight.to_string(),
    };
    let holds = match holds {
        0 => "-".to_owned(),
        _ => format!("{holds} ({})", duration(provider.hold_remaining_ms)),
    };
    let breaker = provider.breaker.as_deref().unwrap_or("-");
    let quota = provider.quota_used.iter();
    let quota = quota.map(|(dimension, used)| format!("{dimension} {:.0} %", used * 100.0));
    let quota = quota.collect::<Vec<_>>().join(", ");
    write!(
        text,
        "\n{name:width$} {waiting:>8} {in_flight:>10} {holds:>10} {upstream_429:>6} {breaker:>9}  \
         {quota}"
    )?;
    if let Some(limited_by) = &provider.limited_by {
        let oldest = duration(provider.oldest_wait_ms);
        write!(text, "\n{:width$} waiting for {limited_by}, the first for {oldest}", "")?;
    }
    Ok(())
}

/// Formats a duration by its two largest units.
fn duration(millis: u64) -> String {
    let seconds = millis / 1_000;
    match seconds {
        0 => format!("{millis} ms"),
        1..60 => format!("{seconds} s"),
        60..3_600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{} h {} min", seconds / 3_600, seconds % 3_600 / 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds % 86_400 / 3_600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_two_units() {
        let texts = [999, 59_000, 61_000, 3_661_000, 90_000_000].map(duration);
        assert_eq!(texts, ["999 ms", "59 s", "1 min 1 s", "1 h 1 min", "1 d 1 h"]);
    }

    #[test]
    fn a_provider_that_waits_says_for_what() {
        let provider = Provider {
            name: "openai".to_owned(),
            waiting: 12,
            oldest_wait_ms: 3_000,
            in_flight: 8,
            concurrency_limit: Some(8),
            limited_by: Some("concurrency".to_owned()),
            holds: 1,
            hold_remaining_ms: 61_000,
            breaker: Some("half_open".to_owned()),
            quota_used: [("requests".to_owned(), 0.984)].into(),
            upstream_429: 7,
        };
        let mut text = String::new();
        write_providers(&mut text, &[provider]).unwrap();
        assert!(text.contains("8/8 1 (1 min 1 s)      7 half_open  requests 98 %"), "{text}");
        assert!(text.ends_with("waiting for concurrency, the first for 3 s"), "{text}");
    }
}
