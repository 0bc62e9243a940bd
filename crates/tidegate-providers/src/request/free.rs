//! Free requests: those that use nothing that the provider limits.
//!
//! GET, HEAD and OPTIONS are free unless a server may take the request for another method, and so
//! are a few listed requests. Any other request is a call and takes a permit, even on unknown
//! paths.

use http::Method;

use super::path::percent_decoded;
use super::path_shape;

/// Pattern of a request that takes no permit.
struct Free {
    method: Method,
    /// Segments of the path below the API root; `*` matches an id.
    shape: &'static str,
}

/// Deletions and cancellations: they use no model, and a cancellation that arrives early saves
/// work.
const FREE: &[Free] = &[
    // Deletes a file or cached content.
    Free { method: Method::DELETE, shape: "files/*" },
    Free { method: Method::DELETE, shape: "cachedContents/*" },
    // Deletes a fine-tuned model.
    Free { method: Method::DELETE, shape: "models/*" },
    // Deletes stored conversations and their data.
    Free { method: Method::DELETE, shape: "responses/*" },
    Free { method: Method::DELETE, shape: "conversations/*" },
    Free { method: Method::DELETE, shape: "threads/*" },
    Free { method: Method::DELETE, shape: "assistants/*" },
    Free { method: Method::DELETE, shape: "vector_stores/*" },
    Free { method: Method::DELETE, shape: "messages/batches/*" },
    // Cancels work in progress.
    Free { method: Method::POST, shape: "responses/*/cancel" },
    Free { method: Method::POST, shape: "batches/*/cancel" },
    Free { method: Method::POST, shape: "messages/batches/*/cancel" },
    Free { method: Method::POST, shape: "threads/*/runs/*/cancel" },
];

/// Query parameters that a free request may have. Some servers take a path or a method from others,
/// so any other parameter makes the request a call.
const FREE_QUERY: [&str; 4] = ["api-version", "key", "alt", "beta"];

/// Headers and parameters with which some servers override the method or path of a request, in
/// lower case and without separators.
const OVERRIDES: [&str; 15] = [
    "xhttpmethodoverride",
    "xhttpmethod",
    "xmethodoverride",
    "httpmethodoverride",
    "methodoverride",
    "xmethod",
    "xhttpverb",
    "xverb",
    "xoriginalmethod",
    "xforwardedmethod",
    "xrewritemethod",
    "xoriginalurl",
    "xoriginaluri",
    "xrewriteurl",
    "xrewriteuri",
];

/// Returns whether a request without a body takes no permit, by its method, its raw path and its
/// query.
///
/// ```
/// use http::Method;
/// use tidegate_providers::request::is_free;
/// assert!(is_free(&Method::GET, "/v1/models", None));
/// assert!(is_free(&Method::POST, "/v1/responses/resp_1/cancel", None));
/// assert!(!is_free(&Method::POST, "/v1/chat/completions/x/cancel", None));
/// assert!(!is_free(&Method::GET, "/v1/responses", Some("_method=POST")));
/// ```
#[must_use]
pub fn is_free(method: &Method, path: &str, query: Option<&str>) -> bool {
    let parameters = || query.into_iter().flat_map(|query| query.split(['&', ';']));
    if is_read_only(method) {
        return !parameters().any(overrides_method);
    }
    let is_listed = |free: &Free| free.method == *method && path_shape::matches(free.shape, path);
    let is_harmless = |parameter: &str| {
        let name = parameter.split('=').next().unwrap_or_default();
        FREE_QUERY.contains(&name)
    };
    parameters().all(is_harmless) && FREE.iter().any(is_listed)
}

/// Returns whether a method only reads: GET, HEAD or OPTIONS.
#[must_use]
pub fn is_read_only(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS)
}

/// Returns whether some servers take the method or path of a request from a header of this name.
/// Separators are ignored because servers differ in which ones they treat alike.
///
/// ```
/// use tidegate_providers::request::is_override_header;
/// assert!(is_override_header("x-http-method-override") && is_override_header("x_http.method"));
/// assert!(!is_override_header("x-request-id"));
/// ```
#[must_use]
pub fn is_override_header(name: &str) -> bool {
    // Fast path: most headers begin with another letter.
    matches!(name.as_bytes().first(), Some(b'x' | b'X' | b'h' | b'H' | b'm' | b'M'))
        && OVERRIDES.iter().any(|known| {
            let letters = name.bytes().filter(u8::is_ascii_alphanumeric);
            letters.map(|byte| byte.to_ascii_lowercase()).eq(known.bytes())
        })
}

/// Returns whether a query parameter may override the method, such as `_method=POST`.
fn overrides_method(parameter: &str) -> bool {
    let name = percent_decoded(parameter.split('=').next().unwrap_or_default().as_bytes());
    let Ok(name) = String::from_utf8(name) else { return true };
    let is_marked = name.starts_with(['_', '$', '.', '-']);
    is_override_header(&name) || is_marked && name.to_ascii_lowercase().contains("method")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_listed_requests_are_free() {
        for (method, path) in [
            ("DELETE", "/v1/files/file-1"),
            ("DELETE", "/v1beta/files/abc"),
            ("DELETE", "/v1/messages/batches/b_1"),
            ("POST", "/v1/threads/t_1/runs/r_1/cancel"),
            ("POST", "/openai/responses/r_1/cancel"),
            ("GET", "/anything/at/all"),
            ("HEAD", "/v1/chat/completions"),
            ("OPTIONS", "/v1/chat/completions"),
        ] {
            assert!(is_free(&method.parse().unwrap(), path, None), "{method} {path}");
        }
        for (method, path) in [
            ("POST", "/v1/files/file-1"),
            ("PUT", "/v1/responses/r/cancel"),
            ("DELETE", "/v1/chat/completions"),
            ("DELETE", "/v1/unknown/x"),
            ("POST", "/v1/chat/completions/x/cancel"),
            ("POST", "/v1/chat/completions;/responses/x/cancel"),
            ("POST", "/v1/chat%2Fcompletions/responses/x/cancel"),
            ("POST", "/v1/responses/x/cancel/"),
            ("POST", "/v1/responses//cancel"),
            ("POST", "/v1/responses/x%2Fy/cancel"),
            ("POST", "/v1/Responses/x/cancel"),
            ("POST", "/v1/responses"),
            ("TRACE", "/v1/models"),
            ("CONNECT", "/v1/models"),
            ("get", "/v1/models"),
            ("PURGE", "/v1/models"),
        ] {
            assert!(!is_free(&method.parse().unwrap(), path, None), "{method} {path}");
        }
    }

    #[test]
    fn query_cannot_make_a_call_free() {
        let cancel = "/v1/responses/r_1/cancel";
        assert!(is_free(&Method::POST, cancel, Some("api-version=2025-04-01")));
        for query in ["path=/v1/responses", "_method=PUT", "key=1&r=/v1/chat", "key=1;x=2", "x"] {
            assert!(!is_free(&Method::POST, cancel, Some(query)), "{query}");
        }
        for query in ["_method=POST", "a=1&%5Fmethod=POST", "_METHOD=PUT", "$method=POST", "%ff=1"]
        {
            assert!(!is_free(&Method::GET, "/v1/models", Some(query)), "{query}");
        }
        for query in ["limit=2", "method=x", "after=_method", ""] {
            assert!(is_free(&Method::GET, "/v1/models", Some(query)), "{query}");
        }
    }

    #[test]
    fn overrides_are_recognized_with_any_separators() {
        for name in [
            "X-HTTP-Method-Override",
            "x-http-method",
            "x_method_override",
            "x.http.method.override",
            "x--http-method",
            "x-original-url",
        ] {
            assert!(is_override_header(name), "{name}");
        }
        for name in ["x-request-id", "x-stainless-lang", "method", "x", "content-type", ""] {
            assert!(!is_override_header(name), "{name}");
        }
    }
}
