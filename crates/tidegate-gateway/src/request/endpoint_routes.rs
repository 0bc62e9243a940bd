//! The endpoints that are declared for a provider, and the paths that belong to them.

use std::cmp::Reverse;

use tidegate_providers::Endpoint;
use tidegate_providers::request::{route_matches, route_specificity};

/// Declared endpoints and their routes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct EndpointRoutes {
    names: Vec<Endpoint>,
    /// The most specific first.
    routes: Vec<(String, Endpoint)>,
}

impl EndpointRoutes {
    /// Declares an endpoint, and adds paths to it.
    pub(crate) fn declare(&mut self, endpoint: Endpoint, paths: impl IntoIterator<Item = String>) {
        self.routes.extend(paths.into_iter().map(|path| (path, endpoint.clone())));
        self.routes.sort_by_key(|(path, _)| Reverse(route_specificity(path)));
        if !self.names.contains(&endpoint) {
            self.names.push(endpoint);
            self.names.sort();
        }
    }

    /// The endpoint of a plain path, if a route leads there.
    pub(crate) fn of_path(&self, path: &str) -> Option<&Endpoint> {
        let mut routes = self.routes.iter();
        routes.find(|(route, _)| route_matches(route, path)).map(|(_, endpoint)| endpoint)
    }

    /// The endpoint that a caller names, if it is declared.
    pub(crate) fn named(&self, name: &str) -> Option<&Endpoint> {
        let name = Endpoint::new(name);
        self.names.iter().find(|known| **known == name)
    }

    /// The names of all, for people.
    pub(crate) fn known(&self) -> String {
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
    fn the_most_specific_route_counts() {
        let mut routes = EndpointRoutes::default();
        let path = |text| parse_route(text).unwrap();
        routes.declare(Endpoint::new("rest"), [path("/*")]);
        routes.declare(Endpoint::new("vision"), [path("/v1/vision/*")]);
        routes.declare(Endpoint::new("chat"), [path("/v1/vision/chat")]);
        routes.declare(Endpoint::new("extraction"), []);
        let of = |path| routes.of_path(path).unwrap().as_str().to_owned();
        assert_eq!(of("/v1/vision/chat"), "chat");
        assert_eq!(of("/vision/describe"), "vision");
        assert_eq!(of("/v1/embeddings"), "rest");
        assert_eq!(routes.named("Extraction").unwrap().as_str(), "extraction");
        assert!(routes.named("translation").is_none());
        assert_eq!(routes.known(), "chat, extraction, rest, vision");
    }
}
