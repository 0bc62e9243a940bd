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
use super::report::{Report, Unit};
use super::style::{Reset, Styles, XStyle};
use super::value_writer::{ValueWriter, ceil_seconds};

static RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
static POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
static LIMIT: HeaderName = HeaderName::from_static("ratelimit-limit");
static REMAINING: HeaderName = HeaderName::from_static("ratelimit-remaining");
static RESET: HeaderName = HeaderName::from_static("ratelimit-reset");
static X_LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
static X_REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
static X_RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");

/// Limit, remaining and reset of one limit: written together or not at all.
type FieldTriple = [&'static HeaderName; 3];
static DRAFT_06: FieldTriple = [&LIMIT, &REMAINING, &RESET];
static X_FAMILY: FieldTriple = [&X_LIMIT, &X_REMAINING, &X_RESET];

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
    extra: Vec<ExtraField>,
}

#[derive(Debug)]
enum ExtraField {
    /// A list, appended to.
    List(&'static HeaderName, HeaderValue),
    /// Three fields for a single limit, of which the tighter is kept.
    SingleLimit(SingleLimit),
}

#[derive(Debug)]
struct SingleLimit {
    names: &'static FieldTriple,
    remaining: u64,
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
        let mut writer = ValueWriter::new();
        for report in reports {
            separator(&mut writer).quoted(report.name()).text(";q=").number(report.quota());
            if report.unit() != Unit::REQUESTS {
                writer.text(";qu=").quoted(report.unit().as_str());
            }
            if let Some(window) = report.window() {
                writer.text(";w=").number(window);
            }
        }
        if writer.is_empty() { None } else { writer.take() }
    }

    /// Writes the fields, given the value of `RateLimit-Policy`.
    pub(crate) fn with_policy(
        styles: Styles,
        reports: &[Report<'_>],
        wall: WallTime,
        policy: Option<HeaderValue>,
    ) -> Self {
        let state = policy.as_ref().and_then(|_| state(reports));
        let mut fields = Self { policy, state, extra: Vec::new() };
        if !styles.draft_06 && styles.x_ratelimit.is_none() {
            return fields;
        }
        let Some(binding) = Report::binding(reports) else { return fields };
        let mut writer = ValueWriter::new();
        if styles.draft_06 {
            fields.push_draft_06(&mut writer, reports, binding, !styles.draft_11);
        }
        if let Some(x) = styles.x_ratelimit {
            fields.push_x_ratelimit(&mut writer, reports, binding, x, wall);
        }
        fields
    }

    /// Fields of draft 11 for a single limit; only the amount left and the reset are written anew.
    #[cfg(feature = "tower")]
    pub(crate) fn for_one_limit(policy: HeaderValue, prefix: &str, outcome: &Outcome) -> Self {
        let mut writer = ValueWriter::new();
        write_state(writer.text(prefix), outcome.remaining, outcome.reset);
        Self { policy: Some(policy), state: writer.take(), extra: Vec::new() }
    }

    /// Start of the `RateLimit` value of a limit, up to the amount left.
    #[cfg(feature = "tower")]
    pub(crate) fn state_prefix(report: &Report<'_>) -> Box<str> {
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
        for field in self.extra {
            match field {
                ExtraField::List(name, value) => drop(headers.append(name, value)),
                ExtraField::SingleLimit(single) => single.write(headers),
            }
        }
    }

    /// Adds `Access-Control-Expose-Headers`, so that pages of other origins can read the fields.
    #[cfg(feature = "tower")]
    pub(crate) fn expose_to_browsers(mut self, styles: Styles) -> Self {
        let name = &http::header::ACCESS_CONTROL_EXPOSE_HEADERS;
        self.extra.push(ExtraField::List(name, Self::names(styles)));
        self
    }

    /// Returns the names of all fields that these styles write, and of the retry hints, for
    /// `Access-Control-Expose-Headers`.
    #[must_use]
    pub fn names(styles: Styles) -> HeaderValue {
        let mut writer = ValueWriter::new();
        writer.text("retry-after, retry-after-ms");
        let mut add = |names: &[&HeaderName]| {
            for name in names {
                writer.text(", ").text(name.as_str());
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
        if styles.x_ratelimit.is_some() {
            add(&X_FAMILY);
        }
        writer.take().unwrap_or_else(|| HeaderValue::from_static("retry-after"))
    }

    fn push_list(&mut self, name: &'static HeaderName, writer: &mut ValueWriter) {
        if writer.is_empty() {
            return;
        }
        if let Some(value) = writer.take() {
            self.extra.push(ExtraField::List(name, value));
        }
    }

    fn push_single(
        &mut self,
        names: &'static FieldTriple,
        binding: &Report<'_>,
        values: [Option<HeaderValue>; 3],
    ) {
        self.extra.push(ExtraField::SingleLimit(SingleLimit {
            names,
            remaining: binding.remaining(),
            values,
        }));
    }

    fn push_draft_06(
        &mut self,
        writer: &mut ValueWriter,
        reports: &[Report<'_>],
        binding: &Report<'_>,
        policies: bool,
    ) {
        let limit = writer.number(binding.quota()).take();
        let remaining = writer.number(binding.remaining()).take();
        let reset = binding.reset().and_then(|reset| writer.number(ceil_seconds(reset)).take());
        let values = [limit, remaining, reset];
        self.push_single(&DRAFT_06, binding, values);
        if !policies {
            return;
        }
        // Draft 06 requires a window, so limits without one are left out.
        for (report, window) in reports.iter().filter_map(|r| Some((r, r.window()?))) {
            separator(writer).number(report.quota()).text(";w=").number(window);
        }
        self.push_list(&POLICY, writer);
    }

    fn push_x_ratelimit(
        &mut self,
        writer: &mut ValueWriter,
        reports: &[Report<'_>],
        binding: &Report<'_>,
        x: XStyle,
        wall: WallTime,
    ) {
        writer.number(binding.quota());
        if x == XStyle::Envoy {
            for (report, window) in reports.iter().filter_map(|r| Some((r, r.window()?))) {
                writer.text(", ").number(report.quota()).text(";w=").number(window);
                writer.text(";name=").quoted(report.name());
            }
        }
        let limit = writer.take();
        let remaining = writer.number(binding.remaining()).take();
        let reset = binding.reset().and_then(|span| {
            match x {
                XStyle::Envoy | XStyle::Plain(Reset::Delta) => writer.number(ceil_seconds(span)),
                XStyle::Plain(Reset::Epoch) => writer.number(unix_seconds(wall, span)),
                XStyle::Plain(Reset::Rfc3339) => {
                    writer.text(date::rfc3339(unix_seconds(wall, span), &mut [0; 20]))
                }
            }
            .take()
        });
        let values = [limit, remaining, reset];
        self.push_single(&X_FAMILY, binding, values);
    }
}

impl SingleLimit {
    fn write(self, headers: &mut HeaderMap) {
        let [_, remaining, _] = self.names;
        let present = headers.get(*remaining).and_then(|value| value.to_str().ok()?.parse().ok());
        if present.is_some_and(|present: u64| present <= self.remaining) {
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
    let mut writer = ValueWriter::new();
    for report in reports {
        separator(&mut writer).quoted(report.name()).text(";r=");
        write_state(&mut writer, report.remaining(), report.reset());
    }
    writer.take()
}

/// Writes the amount left and the reset.
#[inline]
fn write_state(writer: &mut ValueWriter, remaining: u64, reset: Option<Duration>) {
    writer.number(remaining);
    if let Some(reset) = reset {
        writer.text(";t=").number(ceil_seconds(reset));
    }
}

fn separator(writer: &mut ValueWriter) -> &mut ValueWriter {
    if writer.is_empty() { writer } else { writer.text(", ") }
}

/// Returns the wall time at the end of `span`, in seconds since 1970.
fn unix_seconds(wall: WallTime, span: Duration) -> u64 {
    ceil_seconds(Duration::from_nanos(wall.as_nanos()).saturating_add(span))
}
