//! The table of problem types: URI, title and usual status.

use http::StatusCode;

/// Type of a problem document.
///
/// Types registered with IANA use the registered URI; all others are `urn:tidegate:problem:` and a
/// name. All listeners use the same types.
///
/// ```
/// use tidegate_http::problem::ProblemType;
/// assert_eq!(
///     ProblemType::QuotaExceeded.uri(),
///     "https://iana.org/assignments/http-problem-types#quota-exceeded"
/// );
/// assert_eq!(ProblemType::NotFound.uri(), "urn:tidegate:problem:not-found");
/// assert_eq!(ProblemType::NotFound.status(), 404);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ProblemType {
    /// The caller is over a limit of its own.
    QuotaExceeded,
    /// The service cannot serve requests now: back-pressure, or an unavailable store.
    TemporaryReducedCapacity,
    /// The request has no key to charge. The status is 400, or 401 if the key is a credential.
    NoKey,
    /// The peer address is unknown, so there is no key to charge.
    NoPeer,
    /// A field of the request violates a rule.
    InvalidRequest,
    /// The body cannot be parsed.
    MalformedBody,
    /// The body did not arrive in time.
    SlowBody,
    /// The body is too large.
    BodyTooLarge,
    /// The content type is not JSON.
    NotJson,
    /// There is no resource at this path.
    NotFound,
    /// The path does not support this method.
    MethodNotAllowed,
    /// The request has no valid `Host`.
    NoHost,
    /// The request is for a host that is not served here.
    ForeignHost,
    /// The request comes from a page of another origin.
    ForeignOrigin,
    /// The store is available but cannot perform the operation.
    StoreRejected,
    /// The request has no token, or an unknown one.
    Unauthorized,
    /// The token does not permit the operation.
    Forbidden,
    /// The configuration would be invalid.
    InvalidConfiguration,
    /// The configuration changed concurrently. The status is 409, or 412 if the request named a
    /// revision.
    Conflict,
    /// The settings database is unavailable.
    Database,
    /// No more event streams can be opened.
    TooManyWatchers,
    /// An internal error of the server.
    Internal,
}

macro_rules! iana {
    ($name:literal) => {
        concat!("https://iana.org/assignments/http-problem-types#", $name)
    };
}

macro_rules! urn {
    ($name:literal) => {
        concat!("urn:tidegate:problem:", $name)
    };
}

type Row = (&'static str, &'static str, StatusCode);

impl ProblemType {
    /// Returns the URI: the member `type` of a document.
    #[must_use]
    pub const fn uri(self) -> &'static str {
        self.row().0
    }

    /// Returns the title, which is the same for all problems of a type.
    #[must_use]
    pub const fn title(self) -> &'static str {
        self.row().1
    }

    /// Returns the usual status of the response.
    #[must_use]
    pub const fn status(self) -> StatusCode {
        self.row().2
    }

    const fn row(self) -> Row {
        use StatusCode as S;
        match self {
            Self::QuotaExceeded => {
                (iana!("quota-exceeded"), "Quota exceeded", S::TOO_MANY_REQUESTS)
            }
            Self::TemporaryReducedCapacity => (
                iana!("temporary-reduced-capacity"),
                "Temporarily reduced capacity",
                S::SERVICE_UNAVAILABLE,
            ),
            Self::NoKey => (urn!("no-key"), "No key to charge", S::BAD_REQUEST),
            Self::NoPeer => (urn!("no-peer"), "Peer address unknown", S::INTERNAL_SERVER_ERROR),
            Self::InvalidRequest => (urn!("invalid-request"), "Invalid request", S::BAD_REQUEST),
            Self::MalformedBody => (urn!("malformed-body"), "Malformed body", S::BAD_REQUEST),
            Self::SlowBody => (urn!("slow-body"), "Slow body", S::REQUEST_TIMEOUT),
            Self::BodyTooLarge => (urn!("body-too-large"), "Body too large", S::PAYLOAD_TOO_LARGE),
            Self::NotJson => (urn!("not-json"), "Not declared as JSON", S::UNSUPPORTED_MEDIA_TYPE),
            Self::NotFound => (urn!("not-found"), "Not found", S::NOT_FOUND),
            Self::MethodNotAllowed => {
                (urn!("method-not-allowed"), "Method not allowed", S::METHOD_NOT_ALLOWED)
            }
            Self::NoHost => (urn!("no-host"), "No host", S::BAD_REQUEST),
            Self::ForeignHost => (urn!("foreign-host"), "Foreign host", S::MISDIRECTED_REQUEST),
            Self::ForeignOrigin => (urn!("foreign-origin"), "Foreign origin", S::FORBIDDEN),
            Self::StoreRejected => (
                urn!("store-rejected"),
                "Store cannot perform the operation",
                S::INTERNAL_SERVER_ERROR,
            ),
            Self::Unauthorized => (urn!("unauthorized"), "Unauthorized", S::UNAUTHORIZED),
            Self::Forbidden => (urn!("forbidden"), "Forbidden", S::FORBIDDEN),
            Self::InvalidConfiguration => {
                (urn!("invalid-configuration"), "Invalid configuration", S::UNPROCESSABLE_ENTITY)
            }
            Self::Conflict => (urn!("conflict"), "Concurrent change", S::CONFLICT),
            Self::Database => (urn!("database"), "Database unavailable", S::SERVICE_UNAVAILABLE),
            Self::TooManyWatchers => {
                (urn!("too-many-watchers"), "Too many watchers", S::SERVICE_UNAVAILABLE)
            }
            Self::Internal => (urn!("internal"), "Internal error", S::INTERNAL_SERVER_ERROR),
        }
    }
}
