//! The body of a call: read where that tells what the call asks for, and kept for sending.

use crate::error::BoxError;
use bytes::Bytes;
use http::{HeaderMap, Response};
use tidegate_providers::request::Purpose;

use super::Proxy;
use crate::call_observer::Outcome;
use crate::request::body::{Peeked, RequestBody, StreamedBody};
use crate::request::body_reader::{self, BodyMode, MAX_PEEK, content_length};
use crate::request::body_summary::{self, BodySummary};
use crate::request::call::{BufferedContent, Content};
use crate::request::content_decoding::Codings;
use crate::request::heavy_work::HeavyWork;
use crate::response::body::ResponseBody;
use crate::response::error_response::internal;

impl Proxy<'_> {
    /// What is sent as the body of a call, and what it asks for.
    pub(super) async fn read_content<B>(
        &self,
        purpose: &Purpose<'_>,
        headers: &HeaderMap,
        body: B,
        limit: Option<usize>,
    ) -> Result<(Content, BodySummary), Response<ResponseBody>>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let refuse = |error| self.refuse_body(purpose.dialect, &error);
        let budget = self.budget.of(self.peer.address);
        let codings = Codings::of(headers);
        match BodyMode::of(purpose, headers) {
            BodyMode::Collect => {
                let read = body_reader::collect(body, limit, budget).await;
                let (bytes, permit) = read.map_err(refuse)?;
                self.read_buffered(purpose, codings, BufferedContent::new(bytes, permit)).await
            }
            BodyMode::Peek => {
                let mut body = StreamedBody::new(body, limit);
                let Peeked { begin, is_whole } =
                    body.peek(MAX_PEEK, budget).await.map_err(refuse)?;
                if !is_whole && !purpose.is_other() && body_summary::begins_like_json(&begin) {
                    // Whatever its type says, a server may read it as JSON, and its model may follow.
                    let body = RequestBody::streamed(Box::new(body));
                    let read = body_reader::collect(body, limit, budget).await;
                    let (bytes, permit) = read.map_err(refuse)?;
                    let content = BufferedContent::new(bytes, permit);
                    return self.read_buffered(purpose, codings, content).await;
                }
                let whole = || u64::try_from(begin.len()).ok();
                let size = if is_whole { whole() } else { content_length(headers) };
                let summary = self.read_beginning(purpose, codings, begin.clone(), size).await?;
                let content = match is_whole && purpose.is_other() {
                    true => Content::Buffered(BufferedContent::new(begin, body.into_permit())),
                    false => Content::streamed(body),
                };
                Ok((content, summary))
            }
            BodyMode::Stream => {
                let content = Content::streamed(StreamedBody::new(body, limit));
                Ok((content, BodySummary::uncounted(purpose)))
            }
        }
    }

    /// Reads a body that is buffered, and finds the places in it that may have to be edited.
    async fn read_buffered(
        &self,
        purpose: &Purpose<'_>,
        codings: Codings,
        content: BufferedContent,
    ) -> Result<(Content, BodySummary), Response<ResponseBody>> {
        let size = body_summary::read_size(&codings, &content.bytes);
        let has_fallbacks = !self.route.upstream.fallback.is_empty();
        let asks_for_usage = self.route.client.asks_for_usage || has_fallbacks;
        let read = self.read_away(purpose, size, move |kind| {
            let BufferedContent { bytes, places, .. } = &content;
            let length = u64::try_from(bytes.len()).ok();
            let summary = BodySummary::read(kind, &codings, bytes, length);
            if HeavyWork::is_heavy(size) && has_fallbacks {
                places.models(bytes);
            }
            if HeavyWork::is_heavy(size) && asks_for_usage && summary.asked.is_streamed {
                places.usage_option(bytes);
            }
            (Content::Buffered(content), summary)
        });
        let (content, mut summary) = read.await?;
        summary.name_model(purpose);
        Ok((content, summary))
    }

    /// Reads the beginning of a body that is streamed.
    async fn read_beginning(
        &self,
        purpose: &Purpose<'_>,
        codings: Codings,
        begin: Bytes,
        size: Option<u64>,
    ) -> Result<BodySummary, Response<ResponseBody>> {
        let read_size = body_summary::read_size(&codings, &begin);
        let read = self.read_away(purpose, read_size, move |kind| {
            BodySummary::read(kind, &codings, &begin, size)
        });
        let mut summary = read.await?;
        summary.name_model(purpose);
        Ok(summary)
    }

    /// Reads a body of this size, by another thread if that takes long.
    async fn read_away<T: Send + 'static>(
        &self,
        purpose: &Purpose<'_>,
        size: usize,
        read: impl FnOnce(&Purpose<'static>) -> T + Send + 'static,
    ) -> Result<T, Response<ResponseBody>> {
        let kind = purpose.without_model();
        self.heavy_work.run(self.peer.address, size, move || read(&kind)).await.map_err(|error| {
            tracing::error!(provider = %self.route.upstream.name, %error, "body not read");
            self.refuse(purpose.dialect, &internal(), Outcome::Rejected)
        })
    }
}
