//! Room for bodies that are collected: so much for all of them together, whoever sends them.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// What is counted in.
const KIBIBYTE: usize = 1_024;
/// The most of all bodies at the same time: 512 MiB, in KiB.
const MOST: usize = 512 * 1_024;

/// There is no room for a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too many large bodies are under way")]
pub(crate) struct Full;

/// Room for bodies.
#[derive(Debug)]
pub(crate) struct Room(Arc<Semaphore>);

/// What one body takes of it, until it is dropped.
#[derive(Debug, Default)]
pub(crate) struct Share(Option<OwnedSemaphorePermit>);

impl Default for Room {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(MOST)))
    }
}

impl Room {
    /// Takes more for a body that has so many bytes now. Nobody waits for it: those who have a part
    /// of it would wait for each other.
    pub(crate) fn grow(&self, share: &mut Share, size: usize) -> Result<(), Full> {
        let has = share.0.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        let more = u32::try_from(size.div_ceil(KIBIBYTE).saturating_sub(has)).map_err(|_| Full)?;
        if more == 0 {
            return Ok(());
        }
        let permit = self.0.clone().try_acquire_many_owned(more).map_err(|_| Full)?;
        match &mut share.0 {
            Some(all) => all.merge(permit),
            none => *none = Some(permit),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_share_the_room_and_give_it_back() {
        let room = Room::default();
        let (mut one, mut other) = (Share::default(), Share::default());
        assert_eq!(room.grow(&mut one, (MOST - 1) * KIBIBYTE), Ok(()));
        assert_eq!(room.grow(&mut other, 1), Ok(()));
        assert_eq!(room.grow(&mut other, KIBIBYTE), Ok(()), "it was counted already");
        assert_eq!(room.grow(&mut other, KIBIBYTE + 1), Err(Full));
        drop(one);
        assert_eq!(room.grow(&mut other, 64 * KIBIBYTE * KIBIBYTE), Ok(()));
        assert_eq!(room.grow(&mut other, usize::MAX), Err(Full));
    }
}
