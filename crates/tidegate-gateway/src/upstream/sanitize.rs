//! Makes a provider's response safe to forward: it is a final response, and the configured key is
//! masked.

use bytes::Bytes;
use http::Response;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::response::Parts;
use tidegate_llm::CallError;
use tidegate_providers::{Class, Failure};

use crate::content_coding;
use crate::request::body::IncomingBody;
use crate::request::call::Call;
use crate::response::provider_body::ProviderBody;
use crate::response::proxy_error::{ErrorKind, JSON, ProxyError};
use crate::upstream::attempt::UpstreamClient;

impl UpstreamClient {
    /// Returns a response that may be forwarded to a caller.
    pub(super) fn sanitize_response(
        &self,
        response: Response<IncomingBody>,
    ) -> Result<Response<ProviderBody>, CallError> {
        let (mut head, body) = response.into_parts();
        if head.status.is_informational() {
            // The gateway asked for no upgrade, and a retry would not help.
            let mut failure = Failure::new(self.provider.clone(), Class::Transient, head.status);
            failure.is_final = true;
            return Err(CallError::Provider(Box::new(failure)));
        }
        // Extensions include the reason phrase, which may contain anything.
        head.extensions.clear();
        let redactor = self.redactor.as_ref();
        if let Some(redactor) = redactor {
            redactor.redact_headers(&mut head.headers);
        }
        let body = ProviderBody::new(body, redactor);
        Ok(Response::from_parts(head, body))
    }

    /// Masks the configured key in an error body. An encoded body that contains the key is
    /// forwarded decoded; one that cannot be decoded is replaced.
    pub(super) fn redact_error(&self, call: &Call, head: &mut Parts, body: Bytes) -> Bytes {
        let Some(redactor) = &self.redactor else { return body };
        let body = redactor.redact(&body).map_or(body, Bytes::from);
        if !content_coding::is_encoded(&head.headers) || body.is_empty() {
            return body;
        }
        let replaced = match content_coding::decode_body(&head.headers, &body) {
            Some(decoded) => match redactor.redact(&decoded) {
                Some(redacted) => redacted.into(),
                None => return body,
            },
            None => {
                let kind = match head.status.is_server_error() {
                    true => ErrorKind::Unreachable,
                    false => ErrorKind::Invalid,
                };
                let message = format!(
                    "Tidegate: {} responded with {} in a content coding that cannot be decoded.",
                    self.provider, head.status
                );
                head.headers.insert(CONTENT_TYPE, JSON);
                ProxyError::new(kind, message)
                    .with_status(head.status)
                    .body_bytes(call.request.dialect)
            }
        };
        head.headers.remove(CONTENT_ENCODING);
        replaced
    }
}
