//! A request that is let in: what its handler is told, and what is done to its response.

use http::header::CONTENT_LENGTH;
use http::{Request, Response};

use super::pending_settlement::PendingSettlement;
use crate::field::Fields;
use crate::layer::decision::decided::Decided;

/// What goes with a request that is let in.
#[derive(Default)]
pub(crate) struct Admitted {
    pub(crate) fields: Fields,
    pub(crate) settlement: Option<Box<PendingSettlement>>,
    pub(crate) decided: Option<Decided>,
}

impl Admitted {
    /// Of a request about which there is nothing to say but this, and to nobody but its handler.
    pub(crate) fn told(decided: Decided) -> Self {
        Self { decided: Some(decided), ..Self::default() }
    }

    /// On the way in: tells the handler.
    pub(crate) fn enter<B>(&mut self, request: &mut Request<B>) {
        if let Some(decided) = self.decided.take() {
            request.extensions_mut().insert(decided);
        }
    }

    /// On the way out: tells the caller, and leaves the settlement to the body.
    pub(crate) fn leave<B: http_body::Body>(
        self,
        response: &mut Response<B>,
    ) -> Option<Box<PendingSettlement>> {
        let headers = response.headers_mut();
        self.fields.write(headers);
        let mut settlement = self.settlement?;
        let said =
            headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
        let length = said.or_else(|| response.body().size_hint().exact());
        settlement.responds(response.status(), length);
        Some(settlement)
    }
}
