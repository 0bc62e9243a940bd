//! Which calls belong to an endpoint: those to its paths, or those that name it in a header.
//!
//! The paths of well-known endpoints are those of the provider's API. Any other name is a workload
//! defined by the user, which lists its paths. With an empty list, callers select it by header.

use tidegate_providers::request::{ENDPOINT_NAMES, parse_route};

use crate::values::fields::Fields;
use crate::values::setting::Setting;
use crate::values::value::{Entry, Node, Value};
use crate::violation::{Rule, nearest};

/// Maximum number of paths of an endpoint.
const MAX_PATHS: usize = 64;

/// Reads the paths of an endpoint in normal form; `None` if they are not set.
pub(super) fn read(fields: &mut Fields<'_, '_>) -> Setting<Option<Vec<String>>> {
    let read = fields.setting("paths", |value| paths(value).map(Some));
    read.unwrap_or(Setting::default(None))
}

/// Parses a list of paths.
pub(super) fn paths(value: &Value<'_>) -> Result<Vec<String>, Rule> {
    let texts = value.to_texts()?;
    if texts.len() > MAX_PATHS {
        return Err(Rule::TooManyPaths(MAX_PATHS));
    }
    texts.into_iter().map(|text| parse_route(text).map_err(Rule::RoutePath)).collect()
}

/// Rejects an endpoint that no call would match.
pub(super) fn check_name(entry: &Entry<'_>) -> Result<(), Rule> {
    let Node::Table(fields) = &entry.value.node else { return Ok(()) };
    let has_paths = fields.iter().any(|field| field.key == "paths");
    if has_paths || ENDPOINT_NAMES.contains(&&*entry.key) {
        return Ok(());
    }
    let nearest = nearest(&entry.key, ENDPOINT_NAMES.into_iter());
    Err(Rule::UnknownEndpoint { nearest, known: &ENDPOINT_NAMES })
}

/// The paths of a provider's endpoints, each with its endpoint.
#[derive(Default)]
pub(super) struct RouteOwners<'t>(Vec<(String, &'t str)>);

impl<'t> RouteOwners<'t> {
    /// Adds the paths of an endpoint. Rejects a path that another endpoint has.
    pub(super) fn add(&mut self, endpoint: &'t str, paths: &[String]) -> Result<(), Rule> {
        for path in paths {
            if let Some((_, owner)) = self.0.iter().find(|(known, _)| known == path) {
                let (path, owner) = (path.clone(), (*owner).to_owned());
                return Err(Rule::PathTaken { path, owner });
            }
            self.0.push((path.clone(), endpoint));
        }
        Ok(())
    }
}
