//! Reads rate-limit header fields of a response, in any of their generations.
//!
//! Servers are not trusted: a malformed field is ignored, numbers are capped at 15 digits and waits
//! at a year. Reported limits are no grant: the server decides anew every time.

use std::time::Duration;

use http::header::{AGE, HeaderMap, RETRY_AFTER};
use tidegate_core::WallTime;

use super::date;
use super::structured::{self, BareItem, Item};

/// Maximum wait: a leap year, the length of the longest quota window.
pub(crate) const MAX_WAIT: Duration = Duration::from_secs(366 * 86_400);
/// Maximum integer of a structured field.
const MAX_INTEGER: u64 = 999_999_999_999_999;
/// Resets above this many seconds are a time since 1970; others are relative.
const MIN_EPOCH_SECONDS: u64 = 1_000_000_000;
/// Maximum number of limits read from one response.
const MAX_LIMITS: usize = 64;

/// Limits reported by a response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReportedLimits {
    /// How long not to send any request. Takes precedence over the limits.
    pub retry_after: Option<Duration>,
    /// The limits, in the order of the response.
    pub limits: Vec<ReportedLimit>,
}

/// State of one limit reported by a response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReportedLimit {
    /// Name of the limit.
    pub name: Option<String>,
    /// Amount allowed per window.
    pub quota: Option<u64>,
    /// Length of the window.
    pub window: Option<Duration>,
    /// Unit counted, if not requests.
    pub unit: Option<String>,
    /// Amount left.
    pub remaining: Option<u64>,
    /// Time that `remaining` has to last, or until the limit is full again.
    pub reset: Option<Duration>,
    /// Cost of the request itself.
    pub cost: Option<u64>,
}

/// Reads the limits that a response reports: the IETF drafts of every generation, or
/// `X-RateLimit-*` if there are none. The retry hint is the first valid one of `retry-after-ms`,
/// `x-ms-retry-after-ms` and `Retry-After`.
///
/// Limits in a cached response (`Age` above zero) are outdated and ignored.
///
/// ```
/// use std::time::Duration;
/// use http::HeaderMap;
/// use tidegate_core::WallTime;
/// use tidegate_http::field::read;
///
/// let mut headers = HeaderMap::new();
/// headers.insert("ratelimit-policy", r#""burst";q=100;w=60"#.parse()?);
/// headers.insert("ratelimit", r#""burst";r=0;t=30"#.parse()?);
/// headers.insert("retry-after", "2".parse()?);
/// let reported = read(&headers, WallTime::from_secs(1_800_000_000));
/// assert_eq!(reported.retry_after, Some(Duration::from_secs(2)));
/// assert_eq!((reported.limits[0].quota, reported.limits[0].remaining), (Some(100), Some(0)));
/// # Ok::<(), http::header::InvalidHeaderValue>(())
/// ```
#[must_use]
pub fn read(headers: &HeaderMap, now: WallTime) -> ReportedLimits {
    let epoch = now.as_nanos() / 1_000_000_000;
    let retry_after = retry_after(headers, epoch);
    let cached =
        single_value(headers, AGE.as_str()).and_then(whole_number).is_some_and(|age| age > 0);
    let limits = if cached { Vec::new() } else { limits(headers, epoch) };
    ReportedLimits { retry_after, limits }
}

fn retry_after(headers: &HeaderMap, epoch: u64) -> Option<Duration> {
    for name in ["retry-after-ms", "x-ms-retry-after-ms"] {
        if let Some(millis) = single_value(headers, name).and_then(decimal) {
            return Some(capped(millis / 1_000));
        }
    }
    let text = single_value(headers, RETRY_AFTER.as_str())?;
    let date = || Some(Duration::from_secs(date::read_http(text, epoch)?.saturating_sub(epoch)));
    decimal(text).or_else(date).map(capped)
}

fn limits(headers: &HeaderMap, epoch: u64) -> Vec<ReportedLimit> {
    let policies =
        joined_values(headers, "ratelimit-policy").and_then(|text| structured::list(&text));
    let policies = policies.unwrap_or_default();
    if let Some(text) = joined_values(headers, "ratelimit") {
        let found = match structured::list(&text) {
            Some(items) => by_name(&items, &policies),
            None => {
                structured::dictionary(&text).and_then(|all| draft_07(&all)).into_iter().collect()
            }
        };
        if !found.is_empty() {
            return found;
        }
    }
    for prefix in ["ratelimit", "x-ratelimit", "x-rate-limit"] {
        if let Some(limit) = separate_fields(headers, prefix, &policies, epoch) {
            return vec![limit];
        }
    }
    by_name(&[], &policies)
}

/// Drafts 08 to 11: limits by name with their policies, then policies without a reported state.
/// Reads at most [`MAX_LIMITS`] entries, whatever the server sends.
fn by_name(items: &[Item], policies: &[Item]) -> Vec<ReportedLimit> {
    let mut limits: Vec<ReportedLimit> = Vec::new();
    for item in items {
        if limits.len() == MAX_LIMITS {
            break;
        }
        let BareItem::Text(name) = &item.value else { continue };
        let Some(remaining) = item.number("r").or_else(|| item.number("a")) else { continue };
        let reset = item.number("t").or_else(|| item.number("w"));
        limits.push(ReportedLimit {
            name: Some(name.clone()),
            remaining: Some(remaining),
            reset: reset.map(seconds),
            cost: item.number("c"),
            ..ReportedLimit::default()
        });
    }
    for policy in policies {
        let (BareItem::Text(name), Some(quota)) = (&policy.value, policy.number("q")) else {
            continue;
        };
        let known = limits.iter().position(|limit| limit.name.as_ref() == Some(name));
        let known = match known {
            Some(known) => known,
            None if limits.len() == MAX_LIMITS => continue,
            None => {
                limits.push(ReportedLimit { name: Some(name.clone()), ..ReportedLimit::default() });
                limits.len() - 1
            }
        };
        limits[known].quota = Some(quota);
        limits[known].window = window(policy);
        limits[known].unit = match policy.parameter("qu") {
            Some(BareItem::Text(unit)) if unit != "requests" => Some(unit.clone()),
            _ => None,
        };
    }
    limits
}

/// Draft 07: one dictionary.
fn draft_07(members: &[(String, Item)]) -> Option<ReportedLimit> {
    let number = |name: &str| {
        members.iter().rev().find(|(key, _)| key == name).and_then(|(_, item)| item.value.number())
    };
    let remaining = Some(number("remaining")?);
    let (quota, reset) = (number("limit"), number("reset").map(seconds));
    Some(ReportedLimit { quota, remaining, reset, ..ReportedLimit::default() })
}

/// Drafts up to 06 and their predecessors: one field each for limit, remaining and reset.
fn separate_fields(
    headers: &HeaderMap,
    prefix: &str,
    policies: &[Item],
    epoch: u64,
) -> Option<ReportedLimit> {
    let remaining = single_value(headers, &format!("{prefix}-remaining")).and_then(whole_number)?;
    let limit = joined_values(headers, &format!("{prefix}-limit"));
    let reset =
        single_value(headers, &format!("{prefix}-reset")).and_then(|text| reset(text, epoch));
    // The number may be followed by the policies it is derived from.
    let quota =
        limit.as_deref().and_then(|text| whole_number(text.split([',', ';']).next()?.trim()));
    let listed = limit.as_deref().and_then(structured::list).unwrap_or_default();
    let of_quota = |policy: &&Item| policy.value.number() == quota && policy.number("w").is_some();
    let policy = listed.iter().skip(1).chain(policies).find(of_quota);
    let name = policy.and_then(|policy| match policy.parameter("name") {
        Some(BareItem::Text(name)) => Some(name.clone()),
        _ => None,
    });
    let window = policy.and_then(window);
    Some(ReportedLimit {
        name,
        quota,
        window,
        remaining: Some(remaining),
        reset,
        ..ReportedLimit::default()
    })
}

/// Parses seconds from now, seconds since 1970, or a date.
fn reset(text: &str, epoch: u64) -> Option<Duration> {
    if text.contains('T') && !text.ends_with("GMT") {
        let then = date::read_rfc3339(text)?;
        return Some(capped(Duration::from_secs(then.saturating_sub(epoch))));
    }
    let value = decimal(text)?;
    let span = if value.as_secs() > MIN_EPOCH_SECONDS {
        value.saturating_sub(Duration::from_secs(epoch))
    } else {
        value
    };
    Some(capped(span))
}

fn window(policy: &Item) -> Option<Duration> {
    policy.number("w").filter(|&window| window > 0).map(seconds)
}

fn seconds(seconds: u64) -> Duration {
    capped(Duration::from_secs(seconds))
}

fn capped(span: Duration) -> Duration {
    span.min(MAX_WAIT)
}

/// Parses a number and drops its fraction: some servers send `10.0`.
fn whole_number(text: &str) -> Option<u64> {
    Some(decimal(text)?.as_secs().min(MAX_INTEGER))
}

/// Parses a non-negative number of seconds; digits beyond nanoseconds are dropped.
fn decimal(text: &str) -> Option<Duration> {
    let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(part) {
        return None;
    }
    let nanos = part.bytes().chain(std::iter::repeat(b'0')).take(9);
    let nanos = nanos.fold(0, |sum, digit| sum * 10 + u32::from(digit - b'0'));
    // Only a number with too many digits fails to parse; treat it as the maximum.
    Some(Duration::new(whole.parse().unwrap_or(u64::MAX), nanos))
}

/// Returns the value of a field that occurs exactly once.
fn single_value<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.to_str().ok()?.trim();
    values.next().is_none().then_some(value)
}

/// Returns the value of a list field, whose lines are joined.
fn joined_values(headers: &HeaderMap, name: &str) -> Option<String> {
    let mut lines = Vec::new();
    for value in headers.get_all(name) {
        lines.push(value.to_str().ok()?);
    }
    if lines.is_empty() { None } else { Some(lines.join(", ")) }
}
