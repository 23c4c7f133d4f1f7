//! The certificate of one listener: read at the start, replaced when its files change.

use std::sync::Arc;

use host::{Clock, Disk};
use parking_lot::{Mutex, RwLock};
use tokio_rustls::rustls::ServerConfig;

use crate::{
    expiry::Validity,
    files::{Contents, Files, Made},
    outcome::Handshakes,
};

/// Seconds of a day.
const DAY: i64 = 86_400;

/// Days before the end of a certificate at which a start warns.
const WARN_DAYS: i64 = 14;

/// The certificate of one listener, and its handshakes.
pub struct Identity {
    /// The listener, as logs and metrics name it.
    name: String,
    files: Files,
    /// Application protocols to agree on, the best one first.
    protocols: &'static [&'static [u8]],
    disk: Arc<dyn Disk>,
    clock: Arc<dyn Clock>,
    in_force: RwLock<Made>,
    // As they were read last; `Err` with the reason if that failed.
    last: Mutex<Result<Contents, String>>,
    pub(crate) handshakes: Handshakes,
}

impl Identity {
    /// Reads the files of a listener.
    ///
    /// # Errors
    /// A file cannot be read, or is not what it should be. The text names the file.
    pub fn open(
        name: &str,
        files: Files,
        protocols: &'static [&'static [u8]],
        disk: Arc<dyn Disk>,
        clock: Arc<dyn Clock>,
    ) -> Result<Identity, String> {
        let read = files.read(&*disk)?;
        let made = files.make(&read, protocols, clock.clone())?;
        let identity = Identity {
            name: name.to_owned(),
            files,
            protocols,
            disk,
            clock,
            in_force: RwLock::new(made),
            last: Mutex::new(Ok(read)),
            handshakes: Handshakes::default(),
        };
        identity.warn();
        Ok(identity)
    }

    /// The listener, as logs and metrics name it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Days until the certificate in force expires, below zero after that; `None` if it does not say.
    pub fn days_left(&self) -> Option<f64> {
        let validity = self.in_force.read().validity?;
        Some((validity.until - self.clock.now()) as f64 / DAY as f64)
    }

    /// Reads the files again, and puts a changed certificate into force for new connections. Files that cannot be used are
    /// logged once, and the certificate in force stays. Blocks on the disk.
    pub fn reload(&self) {
        let read = self.files.read(&*self.disk);
        let mut last = self.last.lock();
        if *last == read {
            return;
        }
        let made = read
            .as_ref()
            .map_err(Clone::clone)
            .and_then(|read| self.files.make(read, self.protocols, self.clock.clone()))
            .and_then(|made| self.unless_worse(made));
        match made {
            Ok(made) => {
                *self.in_force.write() = made;
                tracing::info!(
                    listener = self.name,
                    days_left = self.days_left().map(|days| days as i64),
                    "the files of the certificate changed; new connections get the new one"
                );
                self.warn();
            }
            Err(error) => tracing::error!(
                listener = self.name,
                "cannot use the changed files of the certificate; the old certificate stays in force: {error}"
            ),
        }
        // Kept also when unusable: logged once, and used when the files change again.
        *last = read;
    }

    /// The configuration for a new connection.
    pub(crate) fn config(&self) -> Arc<ServerConfig> {
        self.in_force.read().config.clone()
    }

    pub(crate) fn clock(&self) -> &dyn Clock {
        &*self.clock
    }

    /// Refuses an expired certificate while the one in force has not expired.
    fn unless_worse(&self, made: Made) -> Result<Made, String> {
        let is_over = |validity: Option<Validity>| validity.is_some_and(|validity| validity.until < self.clock.now());
        if is_over(made.validity) && !is_over(self.in_force.read().validity) {
            return Err(format!("the certificate in {} has expired", self.files.certificate.display()));
        }
        Ok(made)
    }

    fn warn(&self) {
        let now = self.clock.now();
        let file = self.files.certificate.display();
        let Some(Validity { from, until }) = self.in_force.read().validity else {
            tracing::warn!(listener = self.name, %file, "cannot read until when the certificate is valid");
            return;
        };
        if now < from {
            tracing::warn!(listener = self.name, %file, "the certificate is not valid yet; clients refuse it");
        } else if until < now {
            let days = (now - until) / DAY;
            tracing::warn!(listener = self.name, %file, days, "the certificate has expired; clients refuse it");
        } else if until - now < WARN_DAYS * DAY {
            let days_left = (until - now) / DAY;
            tracing::warn!(listener = self.name, %file, days_left, "the certificate expires soon");
        }
    }
}
