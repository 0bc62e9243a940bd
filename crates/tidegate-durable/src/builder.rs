//! Configuration of a store.

use std::fmt;
use std::time::Duration;

use http::HeaderValue;
use tidegate_shard::route::{DEFAULT_SHARDS, MAX_SHARDS};

use crate::address::Address;
use crate::client::HttpClient;
use crate::error::DurableBuildError;
use crate::store::DurableStore;

/// Default time for a response.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(2);

/// Builds a [`DurableStore`].
#[derive(Clone)]
#[must_use = "call `build` to create the store"]
pub struct DurableBuilder {
    address: String,
    secret: Option<String>,
    shards: u64,
    timeout: Duration,
}

impl fmt::Debug for DurableBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DurableBuilder")
            .field("secret", &self.secret.as_ref().map(|_| "***"))
            .field("shards", &self.shards)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

impl DurableBuilder {
    pub(crate) fn new(address: &str) -> Self {
        let shards = DEFAULT_SHARDS.into();
        Self { address: address.to_owned(), secret: None, shards, timeout: DEFAULT_TIMEOUT }
    }

    /// Sets the secret of the Worker, its `TIDEGATE_SECRET`.
    pub fn secret(mut self, secret: impl Into<String>) -> Self {
        self.secret = Some(secret.into());
        self
    }

    /// Sets the number of shards. The default is 128. All clients of a Worker must use the same
    /// number, because it decides which object has a key.
    pub fn shards(mut self, shards: u64) -> Self {
        self.shards = shards;
        self
    }

    /// Sets the maximum time for a response. The default is 2 s. An operation that takes longer
    /// fails, but may have been executed.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Builds the store. It connects with the first operation.
    ///
    /// # Errors
    /// If the address, the secret or the number of shards is invalid, or TLS cannot be set up.
    pub fn build(self) -> Result<DurableStore, DurableBuildError> {
        let address = Address::parse(&self.address)?;
        let shards =
            u32::try_from(self.shards).ok().filter(|shards| (1..=MAX_SHARDS).contains(shards));
        let shards = shards.ok_or(DurableBuildError::Shards(self.shards))?;
        let authorization = self.secret.as_deref().map(authorization).transpose()?;
        let client = HttpClient::new(address, authorization, self.timeout)?;
        let node = getrandom::u64()
            .map_err(|error| DurableBuildError::Random(error.to_string().into()))?;
        Ok(DurableStore::new(client, shards, node))
    }
}

fn authorization(secret: &str) -> Result<HeaderValue, DurableBuildError> {
    let value = HeaderValue::try_from(format!("Bearer {secret}"));
    let mut value = value.ok().filter(|_| !secret.is_empty()).ok_or(DurableBuildError::Secret)?;
    value.set_sensitive(true);
    Ok(value)
}
