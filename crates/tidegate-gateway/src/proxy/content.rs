//! Reads the body of a call: buffers or peeks at it to summarize the request, and keeps it for
//! sending.

use crate::error::BoxError;
use bytes::Bytes;
use http::{HeaderMap, Response};
use tidegate_providers::request::PathPurpose;

use super::Proxy;
use crate::call_observer::Outcome;
use crate::request::body::{Peeked, RequestBody, StreamedBody};
use crate::request::body_reader::{self, BodyMode, MAX_PEEK, content_length};
use crate::request::body_summary::{self, BodySummary};
use crate::request::call::{BufferedContent, Content};
use crate::request::content_decoding::Codings;
use crate::request::work_pool::WorkPool;
use crate::response::body::ResponseBody;
use crate::response::error_response::internal_error;

impl Proxy<'_> {
    /// Returns the body to send and its summary.
    pub(super) async fn read_content<B>(
        &self,
        purpose: &PathPurpose<'_>,
        headers: &HeaderMap,
        body: B,
        limit: Option<usize>,
    ) -> Result<(Content, BodySummary), Response<ResponseBody>>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let refuse = |error| self.refuse_body(purpose.dialect, &error);
        let budget = self.budget.for_peer(self.peer.address);
        let codings = Codings::from_headers(headers);
        match BodyMode::for_request(purpose, headers) {
            BodyMode::Buffer => {
                let read = body_reader::collect(body, limit, budget).await;
                let (bytes, permit) = read.map_err(refuse)?;
                self.read_buffered(purpose, codings, BufferedContent::new(bytes, permit)).await
            }
            BodyMode::Peek => {
                let mut body = StreamedBody::new(body, limit);
                let Peeked { prefix, is_complete } =
                    body.peek(MAX_PEEK, budget).await.map_err(refuse)?;
                if !is_complete && !purpose.is_other() && body_summary::looks_like_json(&prefix) {
                    // Whatever the content type says, a server may parse it as JSON, and the model
                    // may come later.
                    let body = RequestBody::streamed(Box::new(body));
                    let read = body_reader::collect(body, limit, budget).await;
                    let (bytes, permit) = read.map_err(refuse)?;
                    let content = BufferedContent::new(bytes, permit);
                    return self.read_buffered(purpose, codings, content).await;
                }
                let full_size = || u64::try_from(prefix.len()).ok();
                let size = if is_complete { full_size() } else { content_length(headers) };
                let summary = self.read_prefix(purpose, codings, prefix.clone(), size).await?;
                let content = match is_complete && purpose.is_other() {
                    true => Content::Buffered(BufferedContent::new(prefix, body.into_permit())),
                    false => Content::streamed(body),
                };
                Ok((content, summary))
            }
            BodyMode::Stream => {
                let content = Content::streamed(StreamedBody::new(body, limit));
                Ok((content, BodySummary::without_tokens(purpose)))
            }
        }
    }

    /// Summarizes a buffered body. For large bodies, also finds the spans that may have to be
    /// edited.
    async fn read_buffered(
        &self,
        purpose: &PathPurpose<'_>,
        codings: Codings,
        content: BufferedContent,
    ) -> Result<(Content, BodySummary), Response<ResponseBody>> {
        let size = body_summary::read_size(&codings, &content.bytes);
        let has_fallbacks = !self.route.upstream.fallback.is_empty();
        let may_inject_usage_option = self.route.client.injects_usage_option || has_fallbacks;
        let read = self.read_on_worker(purpose, size, move |purpose| {
            let BufferedContent { bytes, edit_spans, .. } = &content;
            let length = u64::try_from(bytes.len()).ok();
            let summary = BodySummary::read(purpose, &codings, bytes, length);
            if WorkPool::is_offloaded(size) && has_fallbacks {
                edit_spans.models(bytes);
            }
            if WorkPool::is_offloaded(size)
                && may_inject_usage_option
                && summary.request.is_streamed
            {
                edit_spans.usage_option(bytes);
            }
            (Content::Buffered(content), summary)
        });
        let (content, mut summary) = read.await?;
        summary.set_model_from_path(purpose);
        Ok((content, summary))
    }

    /// Summarizes a streamed body by its prefix.
    async fn read_prefix(
        &self,
        purpose: &PathPurpose<'_>,
        codings: Codings,
        prefix: Bytes,
        size: Option<u64>,
    ) -> Result<BodySummary, Response<ResponseBody>> {
        let read_size = body_summary::read_size(&codings, &prefix);
        let read = self.read_on_worker(purpose, read_size, move |purpose| {
            BodySummary::read(purpose, &codings, &prefix, size)
        });
        let mut summary = read.await?;
        summary.set_model_from_path(purpose);
        Ok(summary)
    }

    /// Runs `read` on a body of `size` bytes, on a worker thread if the body is large.
    async fn read_on_worker<T: Send + 'static>(
        &self,
        purpose: &PathPurpose<'_>,
        size: usize,
        read: impl FnOnce(&PathPurpose<'static>) -> T + Send + 'static,
    ) -> Result<T, Response<ResponseBody>> {
        let model_free_purpose = purpose.without_model();
        self.work_pool
            .run(self.peer.address, size, move || read(&model_free_purpose))
            .await
            .map_err(|error| {
                let provider = &self.route.upstream.name;
                tracing::error!(%provider, %error, "request body processing failed");
                self.refuse(purpose.dialect, &internal_error(), Outcome::Rejected)
            })
    }
}
