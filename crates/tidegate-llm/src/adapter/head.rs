//! What the head of an answer tells beside its status.

use http::HeaderMap;

use crate::error::{CallError, Failure};
use crate::told::Told;

/// Where providers put their name for a request.
const REQUEST_IDS: [&str; 4] =
    ["x-request-id", "request-id", "apim-request-id", "x-goog-request-id"];

/// The longest such name that is kept.
const LONGEST_ID: usize = 256;

/// What a head told.
#[derive(Clone, Debug)]
pub(super) struct Head {
    pub(super) told: Told,
    pub(super) request_id: Option<String>,
}

impl Head {
    pub(super) fn read(headers: &HeaderMap, told: Told) -> Self {
        let ids = REQUEST_IDS.iter().filter_map(|name| headers.get(*name)?.to_str().ok());
        let request_id = ids.map(str::to_owned).find(|id| (1..=LONGEST_ID).contains(&id.len()));
        Self { told, request_id }
    }

    /// A failure, with what was told along with it. What the failure itself says comes first.
    pub(super) fn failed(&self, mut failure: Failure) -> CallError {
        for (dimension, reading) in self.told.iter() {
            failure.told.add(dimension, *reading);
        }
        failure.request_id = failure.request_id.or_else(|| self.request_id.clone());
        CallError::Provider(Box::new(failure))
    }
}
