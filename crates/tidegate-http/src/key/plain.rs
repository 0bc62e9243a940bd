//! Keys that stand in one place of a request.
//!
//! A field that stands several times is no key: whoever reads it next may take another line than
//! we would, and a caller could be charged under a name that is not the one it is served under.

use http::header::{HeaderMap, HeaderName};

use super::{KeySource, KeyText};
use crate::head::Head;

/// The value of a header field. Made by [`header`].
#[derive(Clone, Debug)]
pub struct Header(HeaderName);

/// Charges by the value of a field that stands once, without blanks around it.
///
/// Callers write their own headers: take one that somebody in front has checked, else a caller
/// has a new key whenever it likes.
#[must_use]
pub const fn header(name: HeaderName) -> Header {
    Header(name)
}

impl KeySource for Header {
    fn write(&self, head: &Head<'_>, key: &mut KeyText) -> Option<()> {
        let value = once(head.headers(), &self.0)?;
        match std::str::from_utf8(value) {
            Ok(text) => key.push_str(text),
            // Values may hold any bytes, and keys are text.
            Err(_) => key.push_folded(value),
        }
        Some(())
    }
}

/// The value of a field that stands once and is not empty.
pub(super) fn once<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h [u8]> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.as_bytes().trim_ascii();
    if values.next().is_some() || value.is_empty() { None } else { Some(value) }
}

/// The client's address. Made by [`client_ip`].
#[derive(Clone, Copy, Debug)]
pub struct ClientIp;

/// Charges by the [client](crate::identity::ClientAddress): an IPv4 address such as `192.0.2.7`,
/// or an IPv6 prefix such as `2001:db8::/64`.
#[must_use]
pub const fn client_ip() -> ClientIp {
    ClientIp
}

impl KeySource for ClientIp {
    fn write(&self, head: &Head<'_>, key: &mut KeyText) -> Option<()> {
        key.push_network(head.client()?);
        Some(())
    }
}

/// The same key for all. Made by [`constant`].
#[derive(Clone, Debug)]
pub struct Constant(String);

/// Charges all requests to one key, under this name.
#[must_use]
pub fn constant(name: impl Into<String>) -> Constant {
    Constant(name.into())
}

impl KeySource for Constant {
    fn write(&self, _: &Head<'_>, key: &mut KeyText) -> Option<()> {
        key.push_str(&self.0);
        Some(())
    }
}

/// A key by a function. Made by [`from_fn`].
#[derive(Clone, Copy)]
pub struct FromFn<F>(F);

/// Charges by what a function makes of the head of a request.
///
/// Do not build keys of things that a caller can vary at will, such as raw paths, times or
/// request ids: every new key is a new full bucket.
///
/// ```
/// use tidegate_http::key;
/// #[derive(Clone)]
/// struct Tenant(String);
/// let source = key::from_fn(|head| Some(head.extensions().get::<Tenant>()?.0.clone()));
/// ```
pub const fn from_fn<F>(function: F) -> FromFn<F>
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

impl<F> std::fmt::Debug for FromFn<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("FromFn(..)")
    }
}
