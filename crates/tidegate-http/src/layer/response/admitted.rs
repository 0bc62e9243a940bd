//! An admitted request: the decision for its handler, and the fields and settlement of its
//! response.

use http::header::CONTENT_LENGTH;
use http::{Request, Response};

use super::pending_settlement::PendingSettlement;
use crate::field::Fields;
use crate::layer::decision::request_decision::RequestDecision;

/// State of an admitted request.
#[derive(Default)]
pub(crate) struct Admitted {
    pub(crate) fields: Fields,
    pub(crate) settlement: Option<Box<PendingSettlement>>,
    pub(crate) decided: Option<RequestDecision>,
}

impl Admitted {
    /// Creates one with a decision for the handler and nothing else.
    pub(crate) fn with_decision(decided: RequestDecision) -> Self {
        Self { decided: Some(decided), ..Self::default() }
    }

    /// Puts the decision into the extensions of the request.
    pub(crate) fn attach_decision<B>(&mut self, request: &mut Request<B>) {
        if let Some(decided) = self.decided.take() {
            request.extensions_mut().insert(decided);
        }
    }

    /// Adds the fields to the response and returns the settlement for its body.
    pub(crate) fn finish_response<B: http_body::Body>(
        self,
        response: &mut Response<B>,
    ) -> Option<Box<PendingSettlement>> {
        let headers = response.headers_mut();
        self.fields.write(headers);
        let mut settlement = self.settlement?;
        let declared =
            headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
        let length = declared.or_else(|| response.body().size_hint().exact());
        settlement.record_response(response.status(), length);
        Some(settlement)
    }
}
