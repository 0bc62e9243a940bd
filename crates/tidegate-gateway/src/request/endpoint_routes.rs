//! The endpoints that are declared for a provider, and their paths.

use std::cmp::Reverse;

use tidegate_providers::Endpoint;
use tidegate_providers::request::{route_matches, route_specificity};

/// Declared endpoints and their paths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct EndpointRoutes {
    names: Vec<Endpoint>,
    /// Most specific first.
    routes: Vec<(String, Endpoint)>,
}

impl EndpointRoutes {
    /// Declares an endpoint and adds paths to it.
    pub(crate) fn declare(&mut self, endpoint: Endpoint, paths: impl IntoIterator<Item = String>) {
        self.routes.extend(paths.into_iter().map(|path| (path, endpoint.clone())));
        self.routes.sort_by_key(|(path, _)| Reverse(route_specificity(path)));
        if !self.names.contains(&endpoint) {
            self.names.push(endpoint);
            self.names.sort();
        }
    }

    /// Returns the endpoint declared for a normalized path.
    pub(crate) fn for_path(&self, path: &str) -> Option<&Endpoint> {
        let mut routes = self.routes.iter();
        routes.find(|(route, _)| route_matches(route, path)).map(|(_, endpoint)| endpoint)
    }

    /// Returns a declared endpoint by its name.
    pub(crate) fn by_name(&self, name: &str) -> Option<&Endpoint> {
        let name = Endpoint::new(name);
        self.names.iter().find(|known| **known == name)
    }

    /// Returns the names of all endpoints for messages.
    pub(crate) fn list_names(&self) -> String {
        match self.names.as_slice() {
            [] => "none".to_owned(),
            names => names.iter().map(Endpoint::as_str).collect::<Vec<_>>().join(", "),
        }
    }
}

#[cfg(test)]
mod tests {
    use tidegate_providers::request::parse_route;

    use super::*;

    #[test]
    fn most_specific_route_wins() {
        let mut routes = EndpointRoutes::default();
        let path = |text| parse_route(text).unwrap();
        routes.declare(Endpoint::new("rest"), [path("/*")]);
        routes.declare(Endpoint::new("vision"), [path("/v1/vision/*")]);
        routes.declare(Endpoint::new("chat"), [path("/v1/vision/chat")]);
        routes.declare(Endpoint::new("extraction"), []);
        let of = |path| routes.for_path(path).unwrap().as_str().to_owned();
        assert_eq!(of("/v1/vision/chat"), "chat");
        assert_eq!(of("/vision/describe"), "vision");
        assert_eq!(of("/v1/embeddings"), "rest");
        assert_eq!(routes.by_name("Extraction").unwrap().as_str(), "extraction");
        assert!(routes.by_name("translation").is_none());
        assert_eq!(routes.list_names(), "chat, extraction, rest, vision");
    }
}
