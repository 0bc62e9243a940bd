//! Styles of rate-limit header fields.

/// One style of rate-limit header fields.
///
/// | style | fields | cost of a response |
/// | --- | --- | --- |
/// | `Draft11` | `RateLimit-Policy`, `RateLimit` with every limit by name | 2 values |
/// | `Draft06` | `RateLimit-Limit`, `-Remaining`, `-Reset` of one limit, `RateLimit-Policy` | 4 values |
/// | `XRateLimit` | `X-RateLimit-Limit`, `-Remaining`, `-Reset` of one limit | 3 values |
/// | `Envoy03` | those of `XRateLimit`, with every policy in `X-RateLimit-Limit` | 3 values |
///
/// Each value is one allocation. A style that reports one limit out of several picks the one that
/// denies, or else the one with the least left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Style {
    /// The IETF draft, versions 08 to 11.
    #[default]
    Draft11,
    /// The IETF draft, versions up to 06.
    Draft06,
    /// The fields in use before any draft, with the given form of the reset.
    XRateLimit(Reset),
    /// The fields of Envoy and Limitador.
    Envoy03,
}

/// Form of `X-RateLimit-Reset`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reset {
    /// Seconds from now.
    #[default]
    Delta,
    /// Seconds since 1970.
    Epoch,
    /// A date such as `2026-11-16T08:30:00Z`.
    Rfc3339,
}

/// A set of styles. The default is draft 11.
///
/// ```
/// use tidegate_http::field::{Reset, Style, Styles};
/// let both = Styles::from([Style::Draft11, Style::XRateLimit(Reset::Epoch)]);
/// assert!(both.needs_wall_time());
/// assert!(!Styles::default().needs_wall_time());
/// assert_ne!(Styles::NONE, Styles::default());
/// ```
///
/// `XRateLimit` and `Envoy03` use the same field names; the last one added wins. Both drafts use
/// `RateLimit-Policy`; if both are enabled, draft 11 writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Styles {
    pub(super) draft_11: bool,
    pub(super) draft_06: bool,
    pub(super) x_ratelimit: Option<XStyle>,
}

/// Content of the `X-RateLimit` fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum XStyle {
    Plain(Reset),
    Envoy,
}

impl Styles {
    /// No fields, except `Retry-After` on refusals.
    pub const NONE: Self = Self { draft_11: false, draft_06: false, x_ratelimit: None };

    /// Adds a style to the set.
    #[must_use]
    pub const fn and(mut self, style: Style) -> Self {
        match style {
            Style::Draft11 => self.draft_11 = true,
            Style::Draft06 => self.draft_06 = true,
            Style::XRateLimit(reset) => self.x_ratelimit = Some(XStyle::Plain(reset)),
            Style::Envoy03 => self.x_ratelimit = Some(XStyle::Envoy),
        }
        self
    }

    /// Returns whether the set includes draft 11.
    #[cfg(feature = "tower")]
    pub(crate) const fn has_draft_11(self) -> bool {
        self.draft_11
    }

    /// Returns whether draft 11 is the only style.
    #[cfg(feature = "tower")]
    pub(crate) const fn is_draft_11_only(self) -> bool {
        self.draft_11 && !self.draft_06 && self.x_ratelimit.is_none()
    }

    /// Returns whether a field contains an absolute time, for which the wall time is needed.
    #[must_use]
    pub const fn needs_wall_time(self) -> bool {
        matches!(self.x_ratelimit, Some(XStyle::Plain(Reset::Epoch | Reset::Rfc3339)))
    }
}

impl Default for Styles {
    fn default() -> Self {
        Self::from(Style::default())
    }
}

impl From<Style> for Styles {
    fn from(style: Style) -> Self {
        Self::NONE.and(style)
    }
}

impl<const N: usize> From<[Style; N]> for Styles {
    fn from(styles: [Style; N]) -> Self {
        styles.into_iter().collect()
    }
}

impl FromIterator<Style> for Styles {
    fn from_iter<I: IntoIterator<Item = Style>>(styles: I) -> Self {
        styles.into_iter().fold(Self::NONE, Self::and)
    }
}
