//! Points in the body of an HTTP request, whose sender gets an answer.

use std::time::Duration;

use carbon::Progress;

use super::{
    budget::BudgetShare,
    connection::READ_BYTES,
    intake::Intake,
    message::{FrameFormat, MessageDecoder},
};
use crate::{Acceptor, Batch, Protocol, Tally, TokenGate};

/// How long a body waits for a full pipeline: its sender can send again.
const PATIENCE: Duration = Duration::from_secs(10);

/// Poll interval for a pipeline that accepts nothing.
const POLL: Duration = Duration::from_millis(250);

/// The encoding of a body of points.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyFormat {
    /// Lines.
    Lines,
    /// One pickle, without the length before it.
    Pickle,
    /// One `carbon.Payload`, without the length before it.
    Protobuf,
}

/// What became of a body.
#[derive(Debug, Clone, PartialEq)]
pub struct TakenBody {
    /// Accepted and rejected points.
    pub tally: Tally,
    /// Why the rest of the body was not accepted; `None` when the body was gone through.
    pub refusal: Option<String>,
}

/// Decodes a body of points sent by HTTP POST, and accepts them; the share has the body's memory. While the pipeline takes
/// nothing this waits ten seconds at most, one second for a journal that fails. A sender with restrictions has a gate.
pub async fn take_body(
    acceptor: &Acceptor,
    sender: Option<&TokenGate>,
    format: BodyFormat,
    body: Vec<u8>,
    share: BudgetShare,
) -> TakenBody {
    let mut batch = acceptor.batch(Protocol::Http);
    batch.restrict_to(sender);
    batch.begin_tally();
    let mut taking = Taking { acceptor, intake: Intake::new(batch, share), held: body.capacity() };
    let taken = match format {
        BodyFormat::Lines => taking.lines(&body).await,
        BodyFormat::Pickle => taking.message(FrameFormat::Pickle, body).await,
        BodyFormat::Protobuf => taking.message(FrameFormat::Protobuf, body).await,
    };
    TakenBody { tally: taking.intake.batch.take_tally(), refusal: taken.err() }
}

/// A body that is taken.
struct Taking<'a> {
    acceptor: &'a Acceptor,
    intake: Intake,
    /// Bytes of the body.
    held: usize,
}

impl Taking<'_> {
    async fn lines(&mut self, body: &[u8]) -> Result<(), String> {
        let mut decoder = carbon::LineDecoder::new();
        let now = self.acceptor.now();
        let mut rest = body;
        while !rest.is_empty() {
            // In chunks, so that a large body does not become one large batch.
            let chunk = &rest[..rest.len().min(READ_BYTES)];
            self.intake.allow(self.held);
            let consumed = decoder.decode(chunk, now, &mut self.intake.batch);
            rest = &rest[consumed..];
            if self.intake.batch.wanted().is_some() {
                self.make_room().await?;
                continue;
            }
            if consumed == 0 {
                decoder.finish(chunk, now, &mut self.intake.batch);
                rest = &rest[chunk.len()..];
            }
            self.accept().await?;
            tokio::task::yield_now().await;
        }
        Ok(())
    }

    async fn message(&mut self, format: FrameFormat, body: Vec<u8>) -> Result<(), String> {
        let now = self.acceptor.now();
        let mut decoding = (MessageDecoder::new(format), body);
        loop {
            let allowed = self.intake.allow(self.held);
            // A body may have millions of points: decoding it would hold up queries and other senders.
            let mut batch = std::mem::replace(&mut self.intake.batch, self.acceptor.batch(Protocol::Http));
            let decoded = tokio::task::spawn_blocking(move || {
                let (decoder, body) = &mut decoding;
                let progress = decoder.decode(body, now, &mut batch, allowed);
                (progress, decoding, batch)
            });
            let progress;
            (progress, decoding, self.intake.batch) = decoded.await.expect("a decoder does not panic");
            match progress {
                Progress::Done => return self.accept().await,
                Progress::SinkFull => self.make_room().await?,
                Progress::NeedsMemory(bytes) => {
                    self.intake.lend(&mut decoding.0, self.held, bytes).await.map_err(|error| error.to_string())?;
                }
            }
        }
    }

    /// Gives the batch more memory, or accepts it.
    async fn make_room(&mut self) -> Result<(), String> {
        if self.intake.try_give_room(self.held) {
            return Ok(());
        }
        if self.intake.batch.is_empty() {
            return self.intake.give_room(self.held).await.map_err(|error| error.to_string());
        }
        self.accept().await
    }

    async fn accept(&mut self) -> Result<(), String> {
        accept(self.acceptor, &mut self.intake.batch).await
    }
}

/// Accepts a batch, or says why the pipeline takes nothing.
async fn accept(acceptor: &Acceptor, batch: &mut Batch) -> Result<(), String> {
    tokio::select! {
        biased;
        () = acceptor.accept(batch) => Ok(()),
        why = given_up(acceptor) => Err(why),
    }
}

/// Returns the reason when the pipeline takes nothing for too long.
async fn given_up(acceptor: &Acceptor) -> String {
    let began = acceptor.clock().instant();
    loop {
        tokio::time::sleep(POLL).await;
        let waited = acceptor.clock().instant().saturating_duration_since(began);
        let refusal = acceptor.refusal();
        if let Some(why) = refusal.journal.filter(|_| PATIENCE / 10 <= waited) {
            return why;
        }
        if let Some(why) = refusal.full.filter(|_| PATIENCE <= waited) {
            return why;
        }
    }
}
