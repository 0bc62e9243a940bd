//! What passes through the stages: commands and their plans.

use super::permits::Permits;
use crate::call::{Call, CallOptions, OutgoingCall};
use crate::plan::{Plan, PlanRequest};

/// A call and the caller's own context of it, such as the user on whose behalf it is made.
///
/// The context passes through all stages of a [`Pipeline`](super::Pipeline): key extractors and the
/// layers around the API see it. It is not sent to the provider.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Command<X = ()> {
    /// The call.
    pub call: Call,
    /// The caller's context.
    pub context: X,
}

impl<X> Command<X> {
    /// Creates a command.
    pub fn new(call: impl Into<Call>, context: X) -> Self {
        Self { call: call.into(), context }
    }
}

impl From<Call> for Command {
    fn from(call: Call) -> Self {
        Self { call, context: () }
    }
}

/// A command and its plan.
#[derive(Debug)]
#[non_exhaustive]
pub struct Planned<C> {
    /// The command, which the handler never changes.
    pub command: C,
    /// Plan with the constraint to enforce.
    pub plan: Plan,
    /// Request the plan was made for.
    pub request: PlanRequest,
    /// Permits, set by the handler. Settle them after the call.
    pub permits: Option<Permits>,
}

impl<C> Planned<C> {
    /// Creates a planned command without a request or user.
    pub fn new(command: C, plan: Plan) -> Self {
        Self { command, plan, request: PlanRequest::new(), permits: None }
    }

    /// Sets the request that the plan was made for. Keeps a user set before, unless `request` has
    /// one.
    #[must_use]
    pub fn with_request(mut self, request: &PlanRequest) -> Self {
        let before = std::mem::replace(&mut self.request, request.clone());
        match (before.user_name(), request.user_name()) {
            (Some(user), None) => self.user(user),
            _ => self,
        }
    }

    /// Sets the user on whose behalf the command runs.
    #[must_use]
    pub fn user(mut self, name: &str) -> Self {
        self.request = self.request.user(name);
        self
    }
}

impl<C: Clone> Clone for Planned<C> {
    /// The clone has no permits: every outgoing call takes its own.
    fn clone(&self) -> Self {
        Self {
            command: self.command.clone(),
            plan: self.plan.clone(),
            request: self.request.clone(),
            permits: None,
        }
    }
}

/// The layers around the API stage see the call of the command.
impl<X> OutgoingCall for Planned<Command<X>> {
    fn options(&self) -> &CallOptions {
        self.command.call.options()
    }

    fn options_mut(&mut self) -> &mut CallOptions {
        self.command.call.options_mut()
    }

    fn input_tokens(&self) -> u64 {
        self.command.call.input_tokens()
    }

    fn has_estimated_input(&self) -> bool {
        self.command.call.has_estimated_input()
    }

    fn max_output(&self) -> Option<u64> {
        self.command.call.max_output()
    }
}
