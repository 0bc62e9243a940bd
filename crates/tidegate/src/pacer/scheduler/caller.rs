//! The caller of an acquire. A caller that uses many tenant names still gets one share.

/// The identity of a caller as the service sees it: a peer, such as the prefix of an address, and a
/// credential within it. Both are numbers that the owner of the pacer chooses, from anything that
/// distinguishes callers and that a caller cannot choose freely.
///
/// Peers take turns; within a peer, its credentials take turns; within a credential, its tenants
/// do. A caller that invents tenants divides the share of its credential, and one that invents
/// credentials divides the share of its peer. The priority of a request orders it only within its
/// credential, unless the caller is [trusted](Self::trusted).
///
/// ```
/// # use std::future::{Future, IntoFuture};
/// # use std::task::{Context, Waker};
/// use tidegate::pacer::{CallerId, Pacer, Priority};
/// # use tidegate::{Engine, Policy};
/// # let engine = Engine::new();
/// # let calls = engine.limiter("calls", Policy::per_minute(1).build()?)?;
/// # let pacer = Pacer::builder(&engine).manual().build();
/// let stranger = CallerId::new(0x7f00_0002).credential(42);
/// let acquire = pacer.acquire([calls.charge("key", 1)]).caller(stranger).priority(Priority::High);
/// # drop(acquire);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CallerId {
    pub(crate) peer: u64,
    pub(crate) credential: u64,
    pub(crate) is_trusted: bool,
}

impl CallerId {
    /// The caller of requests that name none. It is trusted, so its priority counts among all
    /// callers.
    pub const UNSPECIFIED: Self = Self { peer: 0, credential: 0, is_trusted: true };

    /// Creates a caller at this peer, without a credential.
    #[must_use]
    pub const fn new(peer: u64) -> Self {
        Self { peer, credential: 0, is_trusted: false }
    }

    /// Sets the credential.
    #[must_use]
    pub const fn credential(mut self, credential: u64) -> Self {
        self.credential = credential;
        self
    }

    /// The peer of the caller.
    #[must_use]
    pub const fn peer(&self) -> u64 {
        self.peer
    }

    /// Makes the caller's priority count among all callers.
    #[must_use]
    pub const fn trusted(mut self) -> Self {
        self.is_trusted = true;
        self
    }
}

impl Default for CallerId {
    fn default() -> Self {
        Self::UNSPECIFIED
    }
}
