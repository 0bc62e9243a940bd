//! Targets of requests, created once and used for every call.
//!
//! Addresses and keys are validated on creation, so that encoding can only fail because of the
//! chat.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderName, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, Request, Uri};

use super::base_url::{parse_base_url, path_prefix, with_path};
use super::error::RequestError;
use crate::chat::{Chat, Mode};
use crate::dialect::json::merge;
use crate::dialect::{Dialect, Family, Route, anthropic};
use crate::provider::Credential;

/// Default version of Azure's API; see [`api_version`](Target::api_version).
pub const AZURE_API_VERSION: &str = "2024-10-21";

/// Value of the `user-agent` header.
const PRODUCT: &str = concat!("tidegate/", env!("CARGO_PKG_VERSION"));

/// Where requests go: dialect, base URL, model and key. Cheap to clone.
///
/// ```
/// use tidegate_providers::request::Target;
/// use tidegate_providers::{Chat, Credential, Dialect};
/// let key = Credential::new("sk-secret");
/// let target = Target::new(Dialect::OpenAi, "https://proxy.example/llm/", "gpt-4o", &key)?;
/// let request = target.encode(&Chat::user("hello"))?;
/// assert_eq!(request.uri(), "https://proxy.example/llm/v1/chat/completions");
/// assert!(!format!("{request:?}").contains("secret"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Target {
    inner: Arc<Inner>,
}

#[derive(Clone)]
struct Inner {
    dialect: Dialect,
    base: Uri,
    model: String,
    api_version: String,
    fields: HeaderMap,
}

impl Target {
    /// Creates a target. A path of the base URL is kept as a prefix; a slash at its end and the API
    /// root of the provider, such as `/v1`, are optional.
    ///
    /// # Errors
    ///
    /// Fails if the base URL is invalid, the name of the model is empty, the key cannot be sent in
    /// a header, or the dialect is the mock, which has no HTTP API.
    pub fn new(
        dialect: Dialect,
        base_url: &str,
        model: &str,
        credential: &Credential,
    ) -> Result<Self, RequestError> {
        if dialect == Dialect::Mock {
            return Err(RequestError::Mock);
        }
        if model.is_empty() {
            return Err(RequestError::NoModel);
        }
        let mut fields = HeaderMap::new();
        fields.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        fields.insert(USER_AGENT, HeaderValue::from_static(PRODUCT));
        if dialect == Dialect::Anthropic {
            fields.insert("anthropic-version", HeaderValue::from_static(anthropic::VERSION));
        }
        fields.extend(credential_header(dialect, credential.reveal())?);
        let inner = Inner {
            dialect,
            base: parse_base_url(base_url)?,
            model: model.to_owned(),
            api_version: AZURE_API_VERSION.to_owned(),
            fields,
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Sets the version of Azure's API. Has no effect for other providers.
    #[must_use]
    pub fn api_version(mut self, version: &str) -> Self {
        Arc::make_mut(&mut self.inner).api_version = version.to_owned();
        self
    }

    /// Sets a header of every request, replacing any header of that name.
    #[must_use]
    pub fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        Arc::make_mut(&mut self.inner).fields.insert(name, value);
        self
    }

    /// Returns the dialect.
    #[must_use]
    pub fn dialect(&self) -> Dialect {
        self.inner.dialect
    }

    /// Returns the name of the model.
    #[must_use]
    pub fn model(&self) -> &str {
        &self.inner.model
    }

    /// Encodes a chat as a request whose response comes in one piece.
    ///
    /// # Errors
    ///
    /// Fails if the chat contains something that the provider's API cannot express.
    pub fn encode(&self, chat: &Chat) -> Result<Request<Bytes>, RequestError> {
        self.encode_for(chat, Mode::Complete)
    }

    /// Encodes a chat as a request whose response is streamed.
    ///
    /// # Errors
    ///
    /// Fails if the chat contains something that the provider's API cannot express.
    pub fn encode_streamed(&self, chat: &Chat) -> Result<Request<Bytes>, RequestError> {
        self.encode_for(chat, Mode::Stream)
    }

    fn encode_for(&self, chat: &Chat, mode: Mode) -> Result<Request<Bytes>, RequestError> {
        let Inner { dialect, model, .. } = &*self.inner;
        let mut body = Family::of(*dialect).body(*dialect, model, chat, mode)?;
        merge(&mut body, &chat.extra);
        let mut request = Request::new(Bytes::from(serde_json::to_vec(&body)?));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.uri(mode)?;
        *request.headers_mut() = self.inner.fields.clone();
        Ok(request)
    }

    fn uri(&self, mode: Mode) -> Result<Uri, http::Error> {
        let Inner { dialect, base, model, api_version, .. } = &*self.inner;
        let Route { root, rest } = match dialect {
            Dialect::Azure => azure(model, api_version),
            dialect => Family::of(*dialect).route(*dialect, model, mode),
        };
        let prefix = path_prefix(base);
        let prefix = prefix.strip_suffix(root).unwrap_or(prefix);
        with_path(base, &format!("{prefix}{root}{rest}"))
    }
}

/// Returns the name of the header that carries the key.
#[must_use]
pub const fn credential_header_name(dialect: Dialect) -> HeaderName {
    match dialect {
        Dialect::Azure => HeaderName::from_static("api-key"),
        Dialect::Anthropic => HeaderName::from_static("x-api-key"),
        Dialect::Gemini => HeaderName::from_static("x-goog-api-key"),
        _ => AUTHORIZATION,
    }
}

/// Returns the header that carries the key, if there is a key. Its value is marked as sensitive.
///
/// # Errors
/// Fails if the key has characters that are not allowed in a header.
pub fn credential_header(
    dialect: Dialect,
    key: Option<&str>,
) -> Result<Option<(HeaderName, HeaderValue)>, RequestError> {
    let Some(key) = key else { return Ok(None) };
    let name = credential_header_name(dialect);
    let text = if name == AUTHORIZATION { format!("Bearer {key}") } else { key.to_owned() };
    let mut value = HeaderValue::try_from(text).map_err(|_| RequestError::InvalidCredential)?;
    value.set_sensitive(true);
    Ok(Some((name, value)))
}

/// Returns the route of Azure: deployment in the path, API version in the query.
fn azure(deployment: &str, version: &str) -> Route {
    let (deployment, version) = (escaped(deployment), escaped(version));
    let rest = format!("/deployments/{deployment}/chat/completions?api-version={version}");
    Route { root: "/openai", rest }
}

/// Percent-encodes a text as a path segment or query value.
pub(crate) fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                escaped.push(char::from(byte));
            }
            other => escaped.push_str(&format!("%{other:02X}")),
        }
    }
    escaped
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Target")
            .field("dialect", &self.inner.dialect)
            .field("base_url", &format_args!("{}", self.inner.base))
            .field("model", &self.inner.model)
            .finish_non_exhaustive()
    }
}
