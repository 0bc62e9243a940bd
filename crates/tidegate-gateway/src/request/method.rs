//! Methods that are not forwarded.
//!
//! `TRACE` and its relatives have a server show the request that it received, and the key that the
//! gateway added to it. `CONNECT` asks for a tunnel, not for an answer.

use http::Method;

/// The methods that are refused. Methods are case-sensitive, but not every server knows that.
const REFUSED: [&str; 4] = ["CONNECT", "DEBUG", "TRACE", "TRACK"];

/// What a refusal names in `allow`.
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
