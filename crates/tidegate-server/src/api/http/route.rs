//! The routes of the HTTP API.

use axum::http::Method;

use super::operation::Verb;

/// What a path leads to.
#[derive(Clone, Copy, Debug)]
pub(super) enum Route {
    /// A request with a body.
    Task(Task),
    /// The number of pending requests of admission.
    Pending,
    Health,
    /// The path supports these methods, but not that of the request.
    OtherMethod {
        allow: &'static str,
    },
    Nothing,
}

/// The kinds of requests with a body.
#[derive(Clone, Copy, Debug)]
pub(super) enum Task {
    One(Verb),
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
                return Self::Task(Task::SetPending);
            }
            "/v1/pending" => (Self::Pending, "PUT,GET,HEAD"),
            "/v1/batch" => (Self::Task(Task::Batch), "POST"),
            "/v1/admit" => (Self::Task(Task::Admit), "POST"),
            "/v1/acquire" => (Self::Task(Task::Acquire), "POST"),
            "/v1/release" => (Self::Task(Task::Release), "POST"),
            "/v1/renew" => (Self::Task(Task::Renew), "POST"),
            _ => match path.strip_prefix("/v1/").and_then(Verb::named) {
                Some(verb) => (Self::Task(Task::One(verb)), "POST"),
                None => return Self::Nothing,
            },
        };
        match allow.split(',').any(|allowed| allowed == method.as_str()) {
            true => route,
            false => Self::OtherMethod { allow },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_takes_its_methods_and_names_them() {
        let find = |method: &Method, path| format!("{:?}", Route::find(method, path));
        assert_eq!(find(&Method::POST, "/v1/take"), "Task(One(Take))");
        assert_eq!(find(&Method::POST, "/v1/acquire"), "Task(Acquire)");
        assert_eq!(find(&Method::PUT, "/v1/pending"), "Task(SetPending)");
        for method in [Method::GET, Method::HEAD] {
            assert_eq!(find(&method, "/v1/pending"), "Pending");
            assert_eq!(find(&method, "/healthz"), "Health");
            assert_eq!(find(&method, "/v1/take"), "OtherMethod { allow: \"POST\" }");
        }
        assert_eq!(find(&Method::POST, "/healthz"), "OtherMethod { allow: \"GET,HEAD\" }");
        for path in ["/", "/v1", "/v1/", "/v1/take/", "/v1/acquired", "/v2/take", "/V1/take"] {
            assert_eq!(find(&Method::POST, path), "Nothing", "{path}");
        }
    }
}
