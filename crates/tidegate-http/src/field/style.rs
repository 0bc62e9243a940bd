//! The ways in which limits are told.

/// One way to tell callers of limits.
///
/// | style | fields | cost of a response |
/// | --- | --- | --- |
/// | `Draft11` | `RateLimit-Policy`, `RateLimit` with every limit by name | 2 values |
/// | `Draft06` | `RateLimit-Limit`, `-Remaining`, `-Reset` of one limit, `RateLimit-Policy` | 4 values |
/// | `XRateLimit` | `X-RateLimit-Limit`, `-Remaining`, `-Reset` of one limit | 3 values |
/// | `Envoy03` | the same names, with every policy in `X-RateLimit-Limit` | 3 values |
///
/// A value is one allocation. Where one limit is told of several it is the one that denies, or the
/// one with the least left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Style {
    /// The IETF draft from its eighth to its eleventh edition.
    #[default]
    Draft11,
    /// The IETF draft up to its sixth edition.
    Draft06,
    /// What was there before any draft, in the form that was chosen for its reset.
    XRateLimit(Reset),
    /// What Envoy and Limitador tell.
    Envoy03,
}

/// What `X-RateLimit-Reset` says.
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

/// A set of styles: draft 11 unless said otherwise.
///
/// ```
/// use tidegate_http::field::{Reset, Style, Styles};
/// let both = Styles::from([Style::Draft11, Style::XRateLimit(Reset::Epoch)]);
/// assert!(both.needs_wall_time());
/// assert!(!Styles::default().needs_wall_time());
/// assert_ne!(Styles::NONE, Styles::default());
/// ```
///
/// `XRateLimit` and `Envoy03` use the same names; of several such the last counts. Both drafts use
/// `RateLimit-Policy`; together with draft 11, draft 06 leaves that to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Styles {
    pub(super) draft_11: bool,
    pub(super) draft_06: bool,
    pub(super) x: Option<X>,
}

/// What the fields with `X-` hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum X {
    Plain(Reset),
    Envoy,
}

impl Styles {
    /// No fields at all, but `Retry-After` where a request is refused.
    pub const NONE: Self = Self { draft_11: false, draft_06: false, x: None };

    /// The same set and this style.
    #[must_use]
    pub const fn and(mut self, style: Style) -> Self {
        match style {
            Style::Draft11 => self.draft_11 = true,
            Style::Draft06 => self.draft_06 = true,
            Style::XRateLimit(reset) => self.x = Some(X::Plain(reset)),
            Style::Envoy03 => self.x = Some(X::Envoy),
        }
        self
    }

    /// Whether the policies of draft 11 are told.
    #[cfg(feature = "tower")]
    pub(crate) const fn tells_policies(self) -> bool {
        self.draft_11
    }

    /// Whether nothing but draft 11 is told.
    #[cfg(feature = "tower")]
    pub(crate) const fn is_draft_11(self) -> bool {
        self.draft_11 && !self.draft_06 && self.x.is_none()
    }

    /// Whether a field says an instant, for which the wall time must be known.
    #[must_use]
    pub const fn needs_wall_time(self) -> bool {
        matches!(self.x, Some(X::Plain(Reset::Epoch | Reset::Rfc3339)))
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
