//! A configuration in force: one route for each provider, made whole before anybody takes it.

use std::collections::HashMap;
use std::sync::Arc;

use http::HeaderValue;
use tidegate_llm::fallback::{MAX_TARGETS, Target};
use tidegate_llm::rate_limit::{AccountError, Books};
use tidegate_llm::retry::{Policy, RetryLayer};
use tidegate_llm::telemetry::{Observer, Traced};
use tidegate_providers::request::key_field;
use tidegate_providers::{Dialect, Provider};

use crate::error::GatewayError;
use crate::request::body::Http;
use crate::state::accounts::{Accounts, Entry, Make, Shape};
use crate::state::provider_state::Desk;
use crate::upstream::attempt::{Leaf, Side};
use crate::upstream::settings::Upstream;
use crate::upstream::stack::{Chain, Stack, limited};

/// What every configuration is made with.
#[derive(Debug)]
pub(crate) struct Ground {
    pub(crate) books: Books,
    pub(crate) observer: Arc<dyn Observer>,
    pub(crate) http: Http,
}

/// A configuration in force.
#[derive(Default)]
pub(crate) struct Live {
    generation: u64,
    routes: HashMap<String, Arc<Route>>,
}

/// A provider under a configuration.
pub(crate) struct Route {
    pub(crate) upstream: Upstream,
    pub(crate) side: Arc<Side>,
    pub(crate) desk: Arc<Desk>,
    /// The account of our own key, if there is one.
    pub(crate) own: Option<Arc<Entry>>,
    generation: u64,
    retry: RetryLayer,
    chain: Option<Chain>,
}

/// A route before anything is changed for it.
struct Plan {
    upstream: Upstream,
    side: Arc<Side>,
    desk: Arc<Desk>,
    /// Those to turn to, by their place among all.
    targets: Vec<usize>,
}

impl Live {
    /// The route of a provider, by its name as it stands in a path.
    pub(crate) fn route(&self, name: &str) -> Option<&Arc<Route>> {
        self.routes.get(name)
    }

    pub(crate) fn routes(&self) -> impl Iterator<Item = &Arc<Route>> {
        self.routes.values()
    }

    /// Another configuration after this one. Desks of providers that stay are the same, and get
    /// their limits when everything else is known to be right.
    pub(crate) fn follow(
        &self,
        upstreams: Vec<Upstream>,
        ground: &Ground,
    ) -> Result<Self, GatewayError> {
        check(&upstreams)?;
        let chains = upstreams.iter().map(|upstream| targets(upstream, &upstreams));
        let chains: Vec<_> = chains.collect();
        let mut plans = Vec::new();
        for (upstream, targets) in upstreams.into_iter().zip(chains) {
            let (side, desk) = (side(&upstream, ground)?, self.desk(&upstream, ground)?);
            plans.push(Plan { upstream, side, desk, targets });
        }
        self.reshape(&plans)?;
        self.complete(&plans, ground).inspect_err(|_| self.restore(&plans))
    }

    /// The routes of desks that are under their limits.
    fn complete(&self, plans: &[Plan], ground: &Ground) -> Result<Self, GatewayError> {
        let mut owns = Vec::new();
        for Plan { upstream, desk, .. } in plans {
            owns.push(desk.accounts().own().map_err(|source| limits(upstream, source))?);
        }
        let generation = self.generation + 1;
        let mut routes = HashMap::new();
        for (plan, own) in plans.iter().zip(&owns) {
            let route = match self.unchanged(plan, plans).filter(|route| route.is_of(own)) {
                Some(route) => route.clone(),
                None => Arc::new(Route {
                    chain: chain(plan, plans, &owns)?,
                    retry: RetryLayer::new(policy(&plan.upstream, ground)),
                    own: plan.upstream.credential.is_some().then(|| own.clone()),
                    upstream: plan.upstream.clone(),
                    side: plan.side.clone(),
                    desk: plan.desk.clone(),
                    generation,
                }),
            };
            routes.insert(plan.upstream.name.as_str().to_owned(), route);
        }
        Ok(Self { generation, routes })
    }

    /// The route that there is, if neither it nor those that it turns to have changed.
    fn unchanged(&self, plan: &Plan, plans: &[Plan]) -> Option<&Arc<Route>> {
        let stays = |plan: &Plan| {
            let known = self.routes.get(plan.upstream.name.as_str());
            known.filter(|route| route.upstream == plan.upstream)
        };
        let others = plan.upstream.fallback.iter();
        let mut others =
            others.filter_map(|name| plans.iter().find(|other| other.upstream.name == *name));
        stays(plan).filter(|_| others.all(|other| stays(other).is_some()))
    }

    /// The desk of a provider: the one that there is, unless it speaks another API now.
    fn desk(&self, upstream: &Upstream, ground: &Ground) -> Result<Arc<Desk>, GatewayError> {
        let known = self.routes.get(upstream.name.as_str());
        if let Some(route) = known.filter(|route| route.upstream.dialect == upstream.dialect) {
            return Ok(route.desk.clone());
        }
        let (books, observer) = (ground.books.clone(), ground.observer.clone());
        let make = Make { upstream: upstream.clone(), books, observer };
        let desk = Desk::open(make).map_err(|source| limits(upstream, source))?;
        Ok(Arc::new(desk))
    }

    /// Brings all desks under their new limits, or none.
    fn reshape(&self, plans: &[Plan]) -> Result<(), GatewayError> {
        for (done, Plan { upstream, desk, .. }) in plans.iter().enumerate() {
            if let Err(source) = desk.accounts().reshape(Shape::of(upstream)) {
                self.restore(plans.get(..done).unwrap_or_default());
                return Err(limits(upstream, source));
            }
        }
        Ok(())
    }

    /// Brings desks back under the limits that they had.
    fn restore(&self, plans: &[Plan]) {
        for plan in plans {
            let Some(before) = self.routes.get(plan.upstream.name.as_str()) else { continue };
            if let Err(error) = before.desk.accounts().reshape(Shape::of(&before.upstream)) {
                tracing::error!(%error, "limits are those of two configurations");
            }
        }
    }
}

impl Route {
    /// Whether this is the account of our own key, if there is one.
    fn is_of(&self, own: &Arc<Entry>) -> bool {
        self.own.as_ref().is_none_or(|known| Arc::ptr_eq(known, own))
    }

    /// The stack of an account under this configuration.
    pub(crate) fn stack(&self, entry: &Entry) -> Arc<(u64, Stack)> {
        entry.stack(self.generation, |account| {
            // Whose key fails takes nothing from the retries of others.
            let retry = self.retry.with_budget(&entry.budget);
            Stack::new(account, Leaf::new(self.side.clone()), &retry, self.chain.as_ref())
        })
    }

    /// The name of a model in metrics, if it has one.
    pub(crate) fn label(&self, model: Option<&str>) -> Option<Arc<str>> {
        let model = model?;
        self.upstream.models.iter().find(|name| name.eq_ignore_ascii_case(model)).cloned()
    }

    pub(crate) const fn dialect(&self) -> Dialect {
        self.upstream.dialect
    }
}

/// Finds what is wrong before anything is changed.
pub(crate) fn check(upstreams: &[Upstream]) -> Result<(), GatewayError> {
    for (index, upstream) in upstreams.iter().enumerate() {
        let name = || upstream.name.as_str().to_owned();
        if upstreams.iter().take(index).any(|other| other.name == upstream.name) {
            return Err(GatewayError::Twice(name()));
        }
        for target in &upstream.fallback {
            if !upstreams.iter().any(|other| other.name == *target) {
                let target = target.as_str().to_owned();
                return Err(GatewayError::Fallback { name: name(), target });
            }
        }
        let targets =
            named(upstream, upstreams).filter(|(_, other)| unfit(upstream, other).is_none());
        if targets.count() > MAX_TARGETS {
            return Err(too_many(upstream));
        }
        // Limits that can be kept in books of their own can be kept. How many calls may be under
        // way always can be, and is told to the log.
        let observer = Arc::new(Traced);
        let make = Make { upstream: upstream.clone(), books: Books::own(), observer };
        let shape = Shape::of(upstream).without_places();
        Accounts::new(make, shape).map_err(|source| limits(upstream, source))?;
    }
    Ok(())
}

fn side(upstream: &Upstream, ground: &Ground) -> Result<Arc<Side>, GatewayError> {
    let name = || upstream.name.as_str().to_owned();
    let key = upstream.credential.as_ref().and_then(|credential| credential.reveal());
    let key = key_field(upstream.dialect, key);
    let key = key.map_err(|source| GatewayError::Target { name: name(), source })?;
    let field = |text: &str| HeaderValue::from_str(text).map_err(|_| GatewayError::Name(name()));
    Ok(Arc::new(Side {
        label: field(upstream.name.as_str())?,
        host: field(upstream.base.authority().as_str())?,
        provider: upstream.name.clone(),
        dialect: upstream.dialect,
        base: upstream.base.clone(),
        key,
        http: ground.http.clone(),
    }))
}

fn policy(upstream: &Upstream, ground: &Ground) -> Policy {
    Policy::new(upstream.name.clone())
        .schedule(upstream.schedule)
        .max_server_delay(upstream.max_wait)
        .observer(ground.observer.clone())
}

/// Those to turn to, of those who are named, by their place among all.
fn targets(upstream: &Upstream, all: &[Upstream]) -> Vec<usize> {
    let mut targets = Vec::new();
    for (index, other) in named(upstream, all) {
        match unfit(upstream, other) {
            None => targets.push(index),
            Some(why) => {
                tracing::warn!("No fallback from {} to {}: {why}", upstream.name, other.name);
            }
        }
    }
    targets
}

/// Those whom an upstream names, in its order.
fn named<'u>(
    upstream: &'u Upstream,
    all: &'u [Upstream],
) -> impl Iterator<Item = (usize, &'u Upstream)> {
    let place = |name: &Provider| all.iter().enumerate().find(|(_, other)| other.name == *name);
    upstream.fallback.iter().filter_map(place)
}

/// Why another cannot answer in the words of the one that was asked, if it cannot.
fn unfit(upstream: &Upstream, other: &Upstream) -> Option<&'static str> {
    if other.family() != upstream.family() {
        Some("it speaks another API")
    } else if !other.takes_others_calls() {
        Some("it has no key of its own, and a caller's key is not shown to another provider")
    } else if other.dialect == Dialect::Azure && upstream.dialect != Dialect::Azure {
        Some("its paths name deployments of its own")
    } else if other.name == upstream.name {
        Some("it is the same provider")
    } else {
        None
    }
}

/// The chain of those to turn to, with the limits of their own keys.
fn chain(plan: &Plan, plans: &[Plan], owns: &[Arc<Entry>]) -> Result<Option<Chain>, GatewayError> {
    let targets = plan.targets.iter().filter_map(|index| {
        let (other, own) = (plans.get(*index)?, owns.get(*index)?);
        let leaf = Leaf::new(other.side.clone());
        Some(Target::new(other.upstream.name.clone(), limited(&own.account, leaf)))
    });
    let targets: Vec<_> = targets.collect();
    if targets.is_empty() {
        return Ok(None);
    }
    let chain = Chain::new(plan.upstream.name.clone(), targets);
    chain.map(Some).map_err(|_| too_many(&plan.upstream))
}

fn too_many(upstream: &Upstream) -> GatewayError {
    GatewayError::TooManyFallbacks(upstream.name.as_str().to_owned())
}

fn limits(upstream: &Upstream, source: AccountError) -> GatewayError {
    GatewayError::Limits { name: upstream.name.as_str().to_owned(), source }
}
