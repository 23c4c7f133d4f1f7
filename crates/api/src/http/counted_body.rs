//! Bodies of queries, whose memory is counted.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use tokio::sync::Notify;

use super::{
    body::{BodyError, RequestBody},
    client::Client,
    memory::{MemoryBudget, MemoryShare},
    rejection::Rejection,
};

/// Bytes of a body that are not counted: `http.max_connections` bounds them.
const FREE_BYTES: usize = 16 << 10;

/// A body, the buffer that grows to it, and its parameters, in lengths of the body.
const TIMES: usize = 4;

/// The memory of a body and of what is made of it: of the client's credential, where that has a limit, and of all queries.
pub(crate) struct BodyMemory {
    shares: Vec<MemoryShare>,
    leave: Arc<Notify>,
}

impl BodyMemory {
    /// Without bytes. Work and bodies that wait for one of these budgets may ask for its memory while the body is coming.
    pub fn new<'a>(client: &Client, budgets: impl Iterator<Item = &'a MemoryBudget>) -> BodyMemory {
        let leave = Arc::<Notify>::default();
        BodyMemory { shares: budgets.map(|budget| budget.body(client, &leave)).collect(), leave }
    }

    async fn raise(&mut self, bytes: usize) -> Result<(), Rejection> {
        for share in &mut self.shares {
            share.raise(bytes).await?;
        }
        Ok(())
    }

    /// Does something for the body, unless others ask for the memory meanwhile.
    async fn unless_asked<T>(
        &mut self,
        work: impl AsyncFnOnce(&mut BodyMemory) -> Result<T, Rejection>,
    ) -> Result<T, Rejection> {
        let leave = self.leave.clone();
        tokio::select! {
            biased;
            done = work(self) => return done,
            () = leave.notified() => {}
        }
        Err(self.shares.first().map_or(Rejection::Broken, MemoryShare::gives_way))
    }
}

/// All bytes, at most `limit`; the error for a longer body names `setting`. Memory is taken for them before they are kept, and
/// once they are all there for what is made of them; the result has it.
pub(crate) async fn read_counted(
    mut body: RequestBody,
    limit: usize,
    setting: &'static str,
    memory: impl FnOnce() -> BodyMemory,
) -> Result<(Bytes, Option<BodyMemory>), Rejection> {
    if body.announced().is_some_and(|bytes| bytes > limit as u64) {
        return Err(BodyError::TooLarge { limit, setting }.into());
    }
    let mut all = BytesMut::new();
    let add = |all: &mut BytesMut, more: Bytes| {
        if all.len() + more.len() > limit {
            return Err(BodyError::TooLarge { limit, setting });
        }
        all.extend_from_slice(&more);
        Ok(all.len())
    };
    while let Some(more) = body.chunk().await? {
        if FREE_BYTES < add(&mut all, more)? {
            break;
        }
    }
    if all.len() <= FREE_BYTES {
        return Ok((all.freeze(), None));
    }
    let mut memory = memory();
    let all = memory
        .unless_asked(async move |memory| {
            memory.raise(all.len()).await?;
            while let Some(more) = body.chunk().await? {
                memory.raise(all.len() + more.len()).await?;
                add(&mut all, more)?;
            }
            memory.raise(TIMES * all.len()).await?;
            Ok(all.freeze())
        })
        .await?;
    memory.shares.iter_mut().for_each(MemoryShare::is_whole);
    Ok((all, Some(memory)))
}
