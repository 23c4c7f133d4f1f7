//! The bytes of a connection, plain or encrypted.

use std::{
    io,
    net::SocketAddr,
    pin::Pin,
    task::{Context, Poll, Waker},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWriteExt, ReadBuf},
    net::TcpStream,
};

/// Time for the word of TLS that ends a connection.
const CLOSE: Duration = Duration::from_secs(1);

/// What a connection reads from: its reads never wait, as those of [`TcpStream::try_read`].
pub(super) trait Socket: Send + Sync + 'static {
    /// Waits until a read may have something.
    fn readable(&self) -> impl Future<Output = io::Result<()>> + Send;

    /// Reads the available bytes; 0 is the end. `WouldBlock` if there are none.
    fn try_read(&mut self, bytes: &mut [u8]) -> io::Result<usize>;

    /// Says to the sender that the connection has ended, where its protocol has a word for that.
    fn close(&mut self) -> impl Future<Output = ()> + Send;

    /// The addresses of the sender and of this side.
    fn addresses(&self) -> io::Result<(SocketAddr, SocketAddr)>;
}

impl Socket for TcpStream {
    fn readable(&self) -> impl Future<Output = io::Result<()>> + Send {
        TcpStream::readable(self)
    }

    fn try_read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        TcpStream::try_read(self, bytes)
    }

    async fn close(&mut self) {}

    fn addresses(&self) -> io::Result<(SocketAddr, SocketAddr)> {
        Ok((self.peer_addr()?, self.local_addr()?))
    }
}

/// A connection with TLS.
pub(super) struct Encrypted {
    stream: tls::Stream,
    /// The last read found nothing: what comes next comes by the socket. Before, the end or bytes may be decrypted already.
    is_empty: bool,
}

impl Encrypted {
    pub(super) fn new(stream: tls::Stream) -> Encrypted {
        Encrypted { stream, is_empty: false }
    }
}

impl Socket for Encrypted {
    async fn readable(&self) -> io::Result<()> {
        if self.is_empty { self.stream.get_ref().0.readable().await } else { Ok(()) }
    }

    fn try_read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let mut read = ReadBuf::new(bytes);
        // `readable` waits; this only looks.
        let mut without_waker = Context::from_waker(Waker::noop());
        let polled = Pin::new(&mut self.stream).poll_read(&mut without_waker, &mut read);
        self.is_empty = polled.is_pending();
        match polled {
            Poll::Ready(Ok(())) => Ok(read.filled().len()),
            // A sender that closes its connection without a word of TLS has sent what it has: lines have ends of their own.
            Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(0),
            Poll::Ready(Err(error)) => Err(error),
            Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    async fn close(&mut self) {
        // A sender that waits for nothing does not read it either.
        let _ = tokio::time::timeout(CLOSE, self.stream.shutdown()).await;
    }

    fn addresses(&self) -> io::Result<(SocketAddr, SocketAddr)> {
        self.stream.get_ref().0.addresses()
    }
}
