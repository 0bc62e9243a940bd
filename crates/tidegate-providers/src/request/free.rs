//! Requests that are free: those that change something at a provider without using what it limits.
//!
//! Every other request that is not GET, HEAD or OPTIONS is a call and takes a permit, also on paths
//! that nobody has heard of. Reading is free, unless the request can be read as another method.

use http::Method;

use super::path::percent_decoded;
use super::path_shape;

/// A request that takes no permit.
struct Free {
    method: Method,
    /// The segments of its path below a root; `*` is an id.
    shape: &'static str,
}

/// Removing something, and stopping work: both use no model, and the sooner they arrive the less is
/// used.
const FREE: &[Free] = &[
    // Removes a file or its copy in a cache.
    Free { method: Method::DELETE, shape: "files/*" },
    Free { method: Method::DELETE, shape: "cachedContents/*" },
    // Removes a model that was trained.
    Free { method: Method::DELETE, shape: "models/*" },
    // Removes what is kept of a conversation.
    Free { method: Method::DELETE, shape: "responses/*" },
    Free { method: Method::DELETE, shape: "conversations/*" },
    Free { method: Method::DELETE, shape: "threads/*" },
    Free { method: Method::DELETE, shape: "assistants/*" },
    Free { method: Method::DELETE, shape: "vector_stores/*" },
    Free { method: Method::DELETE, shape: "messages/batches/*" },
    // Stops work that goes on.
    Free { method: Method::POST, shape: "responses/*/cancel" },
    Free { method: Method::POST, shape: "batches/*/cancel" },
    Free { method: Method::POST, shape: "messages/batches/*/cancel" },
    Free { method: Method::POST, shape: "threads/*/runs/*/cancel" },
];

/// Query parameters that a free request may have. Some servers take a path or a method from others.
const FREE_QUERY: [&str; 4] = ["api-version", "key", "alt", "beta"];

/// Names by which some servers take the method or the path of a request from elsewhere than its first
/// line, in lower case and without what is between the words.
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

/// Whether a request without a body takes no permit: by its method, its path as it was written, and
/// its query.
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
    let members = || query.into_iter().flat_map(|query| query.split(['&', ';']));
    if is_reading(method) {
        return !members().any(names_method);
    }
    let is_listed = |free: &Free| free.method == *method && path_shape::matches(free.shape, path);
    let is_harmless = |member: &str| {
        let name = member.split('=').next().unwrap_or_default();
        FREE_QUERY.contains(&name)
    };
    members().all(is_harmless) && FREE.iter().any(is_listed)
}

/// Whether a method only reads.
#[must_use]
pub fn is_reading(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS)
}

/// Whether some servers take the method or the path of a request from a header of this name. Servers
/// differ in which signs between the words they take for the same.
///
/// ```
/// use tidegate_providers::request::is_override;
/// assert!(is_override("x-http-method-override") && is_override("x_http.method"));
/// assert!(!is_override("x-request-id"));
/// ```
#[must_use]
pub fn is_override(name: &str) -> bool {
    // Few names are compared: most begin otherwise.
    matches!(name.as_bytes().first(), Some(b'x' | b'X' | b'h' | b'H' | b'm' | b'M'))
        && OVERRIDES.iter().any(|known| {
            let letters = name.bytes().filter(u8::is_ascii_alphanumeric);
            letters.map(|byte| byte.to_ascii_lowercase()).eq(known.bytes())
        })
}

/// Whether a query parameter names a method, such as `_method=POST`.
fn names_method(member: &str) -> bool {
    let name = percent_decoded(member.split('=').next().unwrap_or_default().as_bytes());
    let Ok(name) = String::from_utf8(name) else { return true };
    let is_marked = name.starts_with(['_', '$', '.', '-']);
    is_override(&name) || is_marked && name.to_ascii_lowercase().contains("method")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_listed_is_charged() {
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
    fn a_query_does_not_hide_a_call() {
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
    fn overrides_are_known_in_every_spelling() {
        for name in [
            "X-HTTP-Method-Override",
            "x-http-method",
            "x_method_override",
            "x.http.method.override",
            "x--http-method",
            "x-original-url",
        ] {
            assert!(is_override(name), "{name}");
        }
        for name in ["x-request-id", "x-stainless-lang", "method", "x", "content-type", ""] {
            assert!(!is_override(name), "{name}");
        }
    }
}
