//! Methods that are not forwarded.
//!
//! `TRACE` and similar methods make a server echo the request it received, including the key that
//! the gateway added. `CONNECT` asks for a tunnel, not for a response.

use http::Method;

/// Refused methods. Methods are case-sensitive, but not every server respects that.
const REFUSED: [&str; 4] = ["CONNECT", "DEBUG", "TRACE", "TRACK"];

/// The `allow` header of a refusal.
pub(crate) const ALLOWED: &str = "GET, HEAD, OPTIONS, POST, PUT, PATCH, DELETE";

/// Whether a method is refused.
pub(crate) fn is_refused(method: &Method) -> bool {
    match *method {
        Method::POST | Method::GET => false,
        _ => REFUSED.iter().any(|refused| refused.eq_ignore_ascii_case(method.as_str())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trace_and_connect_are_refused_in_any_case() {
        for name in ["TRACE", "trace", "Trace", "CONNECT", "connect", "TRACK", "dEBUG"] {
            assert!(is_refused(&Method::from_bytes(name.as_bytes()).unwrap()), "{name}");
        }
        for name in ALLOWED.split(", ").chain(["QUERY", "TRACER"]) {
            assert!(!is_refused(&Method::from_bytes(name.as_bytes()).unwrap()), "{name}");
        }
    }
}
