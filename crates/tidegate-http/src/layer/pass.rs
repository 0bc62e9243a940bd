//! A request that is let in: what its handler is told, and what is done to its response.

use http::header::CONTENT_LENGTH;
use http::{Request, Response};

use super::decided::Decided;
use super::tab::Tab;
use crate::field::Fields;

/// What goes with a request that is let in.
#[derive(Default)]
pub(super) struct Pass {
    pub(super) fields: Fields,
    pub(super) tab: Option<Box<Tab>>,
    pub(super) decided: Option<Decided>,
}

impl Pass {
    /// Of a request about which there is nothing to say but this, and to nobody but its handler.
    pub(super) fn told(decided: Decided) -> Self {
        Self { decided: Some(decided), ..Self::default() }
    }

    /// On the way in: tells the handler.
    pub(super) fn enter<B>(&mut self, request: &mut Request<B>) {
        if let Some(decided) = self.decided.take() {
            request.extensions_mut().insert(decided);
        }
    }

    /// On the way out: tells the caller, and leaves the tab to the body.
    pub(super) fn leave<B: http_body::Body>(self, response: &mut Response<B>) -> Option<Box<Tab>> {
        let headers = response.headers_mut();
        self.fields.write(headers);
        let mut tab = self.tab?;
        let said =
            headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
        let length = said.or_else(|| response.body().size_hint().exact());
        tab.responds(response.status(), length);
        Some(tab)
    }
}
