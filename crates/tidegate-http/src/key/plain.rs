//! Keys read from one part of a request.
//!
//! A repeated header field counts as no key: the application may pick another line than this layer,
//! and the caller would be charged under a different name than it is served under.

use std::fmt;

use http::header::{HeaderMap, HeaderName};

use super::{KeySource, KeyText, Kind, RequestKey};
use crate::head::Head;
use crate::identity::header_name;

/// Key source: the value of a header field.
#[derive(Clone, Debug)]
pub(super) struct Header(HeaderName);

/// Charges by the value of a header field that occurs once, without surrounding whitespace.
///
/// Callers choose their own headers. Use a header that a proxy or an outer layer has verified, or
/// callers can get a new key at will.
///
/// ```
/// use http::HeaderName;
/// use tidegate_http::key;
///
/// let by_organization = key::header("x-org");
/// // For a name known only at run time, parse it and handle the error.
/// let by_user = key::header(HeaderName::try_from("x-user")?);
/// # Ok::<(), http::Error>(())
/// ```
///
/// # Panics
/// Panics if `name` is not a valid header name. A parsed [`HeaderName`] never panics.
#[track_caller]
pub fn header(name: impl AsRef<str>) -> RequestKey {
    RequestKey(Kind::Header(Header(header_name(name.as_ref()))))
}

impl KeySource for Header {
    fn write(&self, head: &Head<'_>, key: &mut KeyText) -> Option<()> {
        let value = single_value(head.headers(), &self.0)?;
        match std::str::from_utf8(value) {
            Ok(text) => key.push_str(text),
            // Header values may contain any bytes, but keys are text.
            Err(_) => key.push_reserved_hash(value),
        }
        Some(())
    }
}

/// Returns the value of a header field that occurs once and is not empty.
pub(super) fn single_value<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h [u8]> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.as_bytes().trim_ascii();
    if values.next().is_some() || value.is_empty() { None } else { Some(value) }
}

/// Key source: the client address.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClientIp;

/// Charges by the [client](crate::identity::ClientAddress): an IPv4 address such as `192.0.2.7`, or
/// an IPv6 prefix such as `2001:db8::/64`.
///
/// The server must provide peer addresses. With axum, use
/// `router.into_make_service_with_connect_info::<SocketAddr>()`; with any other server, put a
/// [`PeerAddr`](crate::identity::PeerAddr) into the extensions of each request. Without it,
/// requests are refused with status 500, unless another [`MissingKey`](super::MissingKey) is
/// chosen.
pub const fn client_ip() -> RequestKey {
    RequestKey(Kind::ClientIp(ClientIp))
}

impl KeySource for ClientIp {
    fn write(&self, head: &Head<'_>, key: &mut KeyText) -> Option<()> {
        key.push_network(head.client()?);
        Some(())
    }
}

/// Key source: one key for all requests.
#[derive(Clone, Debug)]
pub(super) struct Constant(String);

/// Charges all requests to one key of this name.
pub fn constant(name: impl Into<String>) -> RequestKey {
    RequestKey(Kind::Constant(Constant(name.into())))
}

impl KeySource for Constant {
    fn write(&self, _: &Head<'_>, key: &mut KeyText) -> Option<()> {
        key.push_str(&self.0);
        Some(())
    }
}

/// Key source: a function.
#[derive(Clone, Copy)]
struct FromFn<F>(F);

/// Charges by the result of a function of the request head.
///
/// Do not derive keys from values that a caller can vary at will, such as raw paths, times or
/// request ids: every new key is a new full bucket.
///
/// ```
/// use tidegate_http::key;
/// #[derive(Clone)]
/// struct Tenant(String);
/// let source = key::from_fn(|head| Some(head.extensions().get::<Tenant>()?.0.clone()));
/// ```
#[must_use]
pub const fn from_fn<F>(function: F) -> impl KeySource + fmt::Debug
where
    F: Fn(&Head<'_>) -> Option<String> + Send + Sync,
{
    FromFn(function)
}

impl<F> KeySource for FromFn<F>
where
    F: Fn(&Head<'_>) -> Option<String> + Send + Sync,
{
    fn write(&self, head: &Head<'_>, key: &mut KeyText) -> Option<()> {
        key.push_str(&(self.0)(head)?);
        Some(())
    }
}

impl<F> fmt::Debug for FromFn<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FromFn(..)")
    }
}
