//! The routes of the HTTP API.

use axum::http::Method;

use super::operation::Verb;

/// What a path leads to.
#[derive(Clone, Copy, Debug)]
pub(super) enum Route {
    /// A request with a body.
    Endpoint(Endpoint),
    /// The number of pending requests of admission.
    Pending,
    Health,
    /// The path supports these methods, but not that of the request.
    MethodNotAllowed {
        allow: &'static str,
    },
    NotFound,
}

/// The kinds of requests with a body.
#[derive(Clone, Copy, Debug)]
pub(super) enum Endpoint {
    Operation(Verb),
    Batch,
    Admit,
    SetPending,
    Acquire,
    Release,
    Renew,
}

impl Route {
    pub(super) fn find(method: &Method, path: &str) -> Self {
        let (route, allow) = match path {
            "/healthz" => (Self::Health, "GET,HEAD"),
            "/v1/pending" if method == Method::PUT => {
                return Self::Endpoint(Endpoint::SetPending);
            }
            "/v1/pending" => (Self::Pending, "PUT,GET,HEAD"),
            "/v1/batch" => (Self::Endpoint(Endpoint::Batch), "POST"),
            "/v1/admit" => (Self::Endpoint(Endpoint::Admit), "POST"),
            "/v1/acquire" => (Self::Endpoint(Endpoint::Acquire), "POST"),
            "/v1/release" => (Self::Endpoint(Endpoint::Release), "POST"),
            "/v1/renew" => (Self::Endpoint(Endpoint::Renew), "POST"),
            _ => match path.strip_prefix("/v1/").and_then(Verb::from_name) {
                Some(verb) => (Self::Endpoint(Endpoint::Operation(verb)), "POST"),
                None => return Self::NotFound,
            },
        };
        match allow.split(',').any(|allowed| allowed == method.as_str()) {
            true => route,
            false => Self::MethodNotAllowed { allow },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_support_their_methods_and_list_them() {
        let find = |method: &Method, path| format!("{:?}", Route::find(method, path));
        assert_eq!(find(&Method::POST, "/v1/take"), "Endpoint(Operation(Take))");
        assert_eq!(find(&Method::POST, "/v1/acquire"), "Endpoint(Acquire)");
        assert_eq!(find(&Method::PUT, "/v1/pending"), "Endpoint(SetPending)");
        for method in [Method::GET, Method::HEAD] {
            assert_eq!(find(&method, "/v1/pending"), "Pending");
            assert_eq!(find(&method, "/healthz"), "Health");
            assert_eq!(find(&method, "/v1/take"), "MethodNotAllowed { allow: \"POST\" }");
        }
        assert_eq!(find(&Method::POST, "/healthz"), "MethodNotAllowed { allow: \"GET,HEAD\" }");
        for path in ["/", "/v1", "/v1/", "/v1/take/", "/v1/acquired", "/v2/take", "/V1/take"] {
            assert_eq!(find(&Method::POST, path), "NotFound", "{path}");
        }
    }
}
