//! Writes reports as header fields, in every style.
//!
//! A response may already have such fields, from an inner layer or an origin server. List fields
//! are appended to. Where the format has space for one limit only, the tighter one is kept, so that
//! a caller is never told it has more than it has.

use std::time::Duration;

use http::header::{HeaderMap, HeaderName, HeaderValue};
#[cfg(feature = "tower")]
use tidegate::Outcome;
use tidegate_core::WallTime;

use super::date;
use super::line::{Line, whole_seconds};
use super::report::{Report, Unit};
use super::style::{Reset, Styles, X};

static RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
static POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
static LIMIT: HeaderName = HeaderName::from_static("ratelimit-limit");
static REMAINING: HeaderName = HeaderName::from_static("ratelimit-remaining");
static RESET: HeaderName = HeaderName::from_static("ratelimit-reset");
static X_LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
static X_REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
static X_RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");

/// Limit, remaining and reset of one limit: written together or not at all.
type Family = [&'static HeaderName; 3];
static DRAFT_06: Family = [&LIMIT, &REMAINING, &RESET];
static X_FAMILY: Family = [&X_LIMIT, &X_REMAINING, &X_RESET];

/// Header fields of one response, ready to be written.
///
/// ```
/// use http::HeaderMap;
/// use tidegate::{Engine, Policy};
/// use tidegate_core::WallTime;
/// use tidegate_http::field::{Fields, Report, Styles};
///
/// let limiter = Engine::new().limiter("burst", Policy::per_second(5).capacity(100).build()?)?;
/// let decision = limiter.take("alice").now()?;
/// let limit = limiter.limit();
/// let reports = [Report::of(&limit, &decision.outcomes()[0])];
///
/// let mut headers = HeaderMap::new();
/// Fields::new(Styles::default(), &reports, WallTime::default()).write(&mut headers);
/// assert_eq!(headers["ratelimit-policy"], r#""burst";q=100;w=20"#);
/// assert_eq!(headers["ratelimit"], r#""burst";r=99;t=1"#);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Default)]
pub struct Fields {
    /// Fields of draft 11. As the default style, they are kept without an allocation.
    policy: Option<HeaderValue>,
    state: Option<HeaderValue>,
    /// Fields of the other styles.
    others: Vec<Other>,
}

#[derive(Debug)]
enum Other {
    /// A list, appended to.
    List(&'static HeaderName, HeaderValue),
    /// Three fields for a single limit, of which the tighter is kept.
    Single(Single),
}

#[derive(Debug)]
struct Single {
    names: &'static Family,
    left: u64,
    values: [Option<HeaderValue>; 3],
}

impl Fields {
    /// Writes the fields for `reports`. `wall` is used only if the [styles need
    /// it](Styles::needs_wall_time).
    #[must_use]
    pub fn new(styles: Styles, reports: &[Report<'_>], wall: WallTime) -> Self {
        let policy = if styles.draft_11 { Self::policy(reports) } else { None };
        Self::with_policy(styles, reports, wall, policy)
    }

    /// `RateLimit-Policy` of draft 11, which is the same for all requests to the same limits.
    pub(crate) fn policy(reports: &[Report<'_>]) -> Option<HeaderValue> {
        let mut line = Line::new();
        for report in reports {
            comma(&mut line).quoted(report.name()).text(";q=").number(report.quota());
            if report.unit() != Unit::REQUESTS {
                line.text(";qu=").quoted(report.unit().as_str());
            }
            if let Some(window) = report.window() {
                line.text(";w=").number(window);
            }
        }
        if line.is_empty() { None } else { line.take() }
    }

    /// Writes the fields, given the value of `RateLimit-Policy`.
    pub(crate) fn with_policy(
        styles: Styles,
        reports: &[Report<'_>],
        wall: WallTime,
        policy: Option<HeaderValue>,
    ) -> Self {
        let state = policy.as_ref().and_then(|_| state(reports));
        let mut fields = Self { policy, state, others: Vec::new() };
        if !styles.draft_06 && styles.x.is_none() {
            return fields;
        }
        let Some(binding) = Report::binding(reports) else { return fields };
        let mut line = Line::new();
        if styles.draft_06 {
            fields.draft_06(&mut line, reports, binding, !styles.draft_11);
        }
        if let Some(x) = styles.x {
            fields.x(&mut line, reports, binding, x, wall);
        }
        fields
    }

    /// Fields of draft 11 for a single limit; only the amount left and the reset are written anew.
    #[cfg(feature = "tower")]
    pub(crate) fn of_one(policy: HeaderValue, begins: &str, outcome: &Outcome) -> Self {
        let mut line = Line::new();
        write_state(line.text(begins), outcome.remaining, outcome.reset);
        Self { policy: Some(policy), state: line.take(), others: Vec::new() }
    }

    /// Start of the `RateLimit` value of a limit, up to the amount left.
    #[cfg(feature = "tower")]
    pub(crate) fn beginning(report: &Report<'_>) -> Box<str> {
        format!("\"{}\";r=", report.name()).into()
    }

    /// Adds the fields to a response.
    #[inline]
    pub fn write(self, headers: &mut HeaderMap) {
        if let Some(policy) = self.policy {
            headers.append(&POLICY, policy);
        }
        if let Some(state) = self.state {
            headers.append(&RATELIMIT, state);
        }
        for other in self.others {
            match other {
                Other::List(name, value) => drop(headers.append(name, value)),
                Other::Single(single) => single.write(headers),
            }
        }
    }

    /// Adds `Access-Control-Expose-Headers`, so that pages of other origins can read the fields.
    #[cfg(feature = "tower")]
    pub(crate) fn readable(mut self, styles: Styles) -> Self {
        let name = &http::header::ACCESS_CONTROL_EXPOSE_HEADERS;
        self.others.push(Other::List(name, Self::names(styles)));
        self
    }

    /// Returns the names of all fields that these styles write, and of the retry hints, for
    /// `Access-Control-Expose-Headers`.
    #[must_use]
    pub fn names(styles: Styles) -> HeaderValue {
        let mut line = Line::new();
        line.text("retry-after, retry-after-ms");
        let mut add = |names: &[&HeaderName]| {
            for name in names {
                line.text(", ").text(name.as_str());
            }
        };
        if styles.draft_11 {
            add(&[&RATELIMIT]);
        }
        if styles.draft_11 || styles.draft_06 {
            add(&[&POLICY]);
        }
        if styles.draft_06 {
            add(&DRAFT_06);
        }
        if styles.x.is_some() {
            add(&X_FAMILY);
        }
        line.take().unwrap_or_else(|| HeaderValue::from_static("retry-after"))
    }

    fn list(&mut self, name: &'static HeaderName, line: &mut Line) {
        if line.is_empty() {
            return;
        }
        if let Some(value) = line.take() {
            self.others.push(Other::List(name, value));
        }
    }

    fn single(
        &mut self,
        names: &'static Family,
        binding: &Report<'_>,
        values: [Option<HeaderValue>; 3],
    ) {
        self.others.push(Other::Single(Single { names, left: binding.remaining(), values }));
    }

    fn draft_06(
        &mut self,
        line: &mut Line,
        reports: &[Report<'_>],
        binding: &Report<'_>,
        policies: bool,
    ) {
        let limit = line.number(binding.quota()).take();
        let remaining = line.number(binding.remaining()).take();
        let reset = binding.reset().and_then(|reset| line.number(whole_seconds(reset)).take());
        let values = [limit, remaining, reset];
        self.single(&DRAFT_06, binding, values);
        if !policies {
            return;
        }
        // Draft 06 requires a window, so limits without one are left out.
        for (report, window) in reports.iter().filter_map(|r| Some((r, r.window()?))) {
            comma(line).number(report.quota()).text(";w=").number(window);
        }
        self.list(&POLICY, line);
    }

    fn x(
        &mut self,
        line: &mut Line,
        reports: &[Report<'_>],
        binding: &Report<'_>,
        x: X,
        wall: WallTime,
    ) {
        line.number(binding.quota());
        if x == X::Envoy {
            for (report, window) in reports.iter().filter_map(|r| Some((r, r.window()?))) {
                line.text(", ").number(report.quota()).text(";w=").number(window);
                line.text(";name=").quoted(report.name());
            }
        }
        let limit = line.take();
        let remaining = line.number(binding.remaining()).take();
        let reset = binding.reset().and_then(|span| {
            match x {
                X::Envoy | X::Plain(Reset::Delta) => line.number(whole_seconds(span)),
                X::Plain(Reset::Epoch) => line.number(instant(wall, span)),
                X::Plain(Reset::Rfc3339) => {
                    line.text(date::rfc3339(instant(wall, span), &mut [0; 20]))
                }
            }
            .take()
        });
        let values = [limit, remaining, reset];
        self.single(&X_FAMILY, binding, values);
    }
}

impl Single {
    fn write(self, headers: &mut HeaderMap) {
        let [_, remaining, _] = self.names;
        let told = headers.get(*remaining).and_then(|value| value.to_str().ok()?.parse().ok());
        if told.is_some_and(|told: u64| told <= self.left) {
            return;
        }
        for (name, value) in self.names.iter().zip(self.values) {
            match value {
                Some(value) => headers.insert(*name, value),
                None => headers.remove(*name),
            };
        }
    }
}

/// `RateLimit` of draft 11: the state of the limits.
fn state(reports: &[Report<'_>]) -> Option<HeaderValue> {
    let mut line = Line::new();
    for report in reports {
        comma(&mut line).quoted(report.name()).text(";r=");
        write_state(&mut line, report.remaining(), report.reset());
    }
    line.take()
}

/// Writes the amount left and the reset.
#[inline]
fn write_state(line: &mut Line, remaining: u64, reset: Option<Duration>) {
    line.number(remaining);
    if let Some(reset) = reset {
        line.text(";t=").number(whole_seconds(reset));
    }
}

fn comma(line: &mut Line) -> &mut Line {
    if line.is_empty() { line } else { line.text(", ") }
}

/// Returns the wall time at the end of `span`, in seconds since 1970.
fn instant(wall: WallTime, span: Duration) -> u64 {
    whole_seconds(Duration::from_nanos(wall.as_nanos()).saturating_add(span))
}
