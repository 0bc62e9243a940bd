//! Who asks for a permit, so that one caller with many names has the turns of one.

/// A caller, as far as it can be told from outside: a peer, such as the prefix of an address, and
/// inside of it a credential. Both are numbers that the owner of the pacer chooses: whatever tells
/// one from another without being the caller's to choose.
///
/// Peers take turns; inside a peer its credentials do; inside a credential tenants do. Whoever
/// invents tenants divides the share of its credential, and whoever invents credentials that of its
/// peer. The priority of a request orders it among those of its credential, unless the caller is
/// [trusted](Self::trusted).
///
/// ```
/// # use std::future::{Future, IntoFuture};
/// # use std::task::{Context, Waker};
/// use tidegate::pacer::{Caller, Pacer, Priority};
/// # use tidegate::{Engine, Policy};
/// # let engine = Engine::new();
/// # let calls = engine.limiter("calls", Policy::per_minute(1).build()?)?;
/// # let pacer = Pacer::builder(&engine).by_hand().build();
/// let stranger = Caller::new(0x7f00_0002).credential(42);
/// let acquire = pacer.acquire([calls.charge("key", 1)]).caller(stranger).priority(Priority::High);
/// # drop(acquire);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Caller {
    pub(crate) peer: u64,
    pub(crate) credential: u64,
    pub(crate) is_trusted: bool,
}

impl Caller {
    /// The caller of a request that names none: it is trusted, so that its priority counts among
    /// all.
    pub const ANYBODY: Self = Self { peer: 0, credential: 0, is_trusted: true };

    /// Somebody at this peer, without a credential.
    #[must_use]
    pub const fn new(peer: u64) -> Self {
        Self { peer, credential: 0, is_trusted: false }
    }

    /// With this credential.
    #[must_use]
    pub const fn credential(mut self, credential: u64) -> Self {
        self.credential = credential;
        self
    }

    /// The peer.
    #[must_use]
    pub const fn peer(&self) -> u64 {
        self.peer
    }

    /// Its priority counts among all callers.
    #[must_use]
    pub const fn trusted(mut self) -> Self {
        self.is_trusted = true;
        self
    }
}

impl Default for Caller {
    fn default() -> Self {
        Self::ANYBODY
    }
}
