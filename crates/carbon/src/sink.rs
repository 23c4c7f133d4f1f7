//! Where decoded points go, and every reason to reject one.

use metric::{NameError, Timestamp};

/// Receives the points that a decoder finds. Calls are static, so that a point costs no virtual call.
pub trait Sink {
    /// A point as it was sent. The name is raw: [`metric::canonical_name`] has not seen it. The time is in Unix
    /// seconds, floored, within ±2^53; the value is never NaN and may be infinite.
    fn point(&mut self, name: &[u8], time: Timestamp, value: f64);

    /// A rejected line, frame or item of a frame, one call each. `sample` is the input or its beginning; items of pickle
    /// and protobuf frames are written as text. A sample can be as long as a frame: keep a part of it.
    fn reject(&mut self, reason: RejectReason, sample: &[u8]);

    /// Whether a point whose name has at most so many bytes may come now. A decoder asks before each point; at a no it stops
    /// in front of it, and goes on there when it is called again.
    #[inline]
    fn has_room(&mut self, name_bytes: usize) -> bool {
        let _ = name_bytes;
        true
    }
}

/// Why a decoder of frames returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// The frame is finished.
    Done,
    /// The sink has no room. The next call goes on with the same frame.
    SinkFull,
    /// The frame needs this many bytes of the decoder's own memory. The next call begins it again; the sink has seen nothing of it.
    NeedsMemory(usize),
}

/// Declares the reasons once: variant, counter name, sentence.
macro_rules! reasons {
    ($($(#[$doc:meta])+ $variant:ident, $name:literal, $sentence:literal;)+) => {
        /// Every reason to reject a point, from the first byte read to the registry. The names label counters on which
        /// operators alert: a released name never changes.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum RejectReason {
            $($(#[$doc])+ $variant,)+
        }

        impl RejectReason {
            /// Every reason, in the order of the variants: `ALL[reason as usize] == reason`.
            pub const ALL: [RejectReason; [$($name),+].len()] = [$(RejectReason::$variant),+];

            /// The reason as a counter's label, in snake case.
            pub fn name(self) -> &'static str {
                match self {
                    $(RejectReason::$variant => $name,)+
                }
            }

            fn sentence(self) -> &'static str {
                match self {
                    $(RejectReason::$variant => $sentence,)+
                }
            }
        }
    };
}

reasons! {
    /// A line that is not `name value timestamp`.
    BadLine, "bad_line", "the line does not have three fields: name, value, timestamp";
    /// A line longer than [`crate::MAX_LINE_BYTES`].
    LineTooLong, "line_too_long", "the line is longer than 16384 bytes";
    /// A value that Python's `float()` would not read.
    BadValue, "bad_value", "the value is not a number";
    /// A value that is NaN; carbon drops it as well.
    NanValue, "nan_value", "the value is NaN";
    /// A timestamp that is not a finite number.
    BadTimestamp, "bad_timestamp", "the timestamp is not a number of seconds";
    /// A frame longer than the decoder takes.
    FrameTooLong, "frame_too_long", "the frame is longer than allowed; send smaller batches or raise the limit";
    /// A connection that ended within a frame.
    FrameCutShort, "frame_cut_short", "the connection ended within a frame";
    /// A frame that is not a pickle, or a pickle that is too large.
    BadPickle, "bad_pickle", "the frame is not a pickled list of (name, (timestamp, value))";
    /// The rest of a frame whose points share so much that they would not fit in memory.
    FrameExpands, "frame_expands", "the frame stands for far more than it holds; send fewer points of one name in a frame";
    /// A frame for which the receivers' memory can never suffice.
    FrameNeedsMemory, "frame_needs_memory", "decoding the frame needs more memory than a connection gets; send smaller batches or raise receive.memory";
    /// A pickle that would run Python code.
    UnsafePickle, "unsafe_pickle", "the pickle names a Python class or function; only lists, tuples, text and numbers are read";
    /// A frame that is not a `carbon.Payload`.
    BadProtobuf, "bad_protobuf", "the frame is not a carbon.Payload message";
    /// An item of a pickled list that is not a point.
    BadItem, "bad_item", "the item is not (name, (timestamp, value))";
    /// [`NameError::Empty`].
    NameEmpty, "name_empty", "the metric name is empty";
    /// [`NameError::TooLong`].
    NameTooLong, "name_too_long", "the metric name is longer than 4095 bytes";
    /// [`NameError::TooManyComponents`].
    NameTooManyComponents, "name_too_many_components", "the metric name has more than 64 components";
    /// [`NameError::ControlCharacter`].
    NameControlCharacter, "name_control_character", "the metric name has a control character";
    /// [`NameError::NotUtf8`], or a line that is not UTF-8.
    NotUtf8, "not_utf8", "the metric name is not UTF-8";
    /// A point older than the longest retention.
    TooOld, "too_old", "the point is older than its metric's longest retention";
    /// A point from the future.
    TooFarAhead, "too_far_ahead", "the timestamp is too far in the future; it must be in seconds";
    /// A name that `blacklist.conf` matches.
    Blacklisted, "blacklisted", "the metric name matches blacklist.conf";
    /// A name that no line of `whitelist.conf` matches.
    NotWhitelisted, "not_whitelisted", "the metric name matches no line of whitelist.conf";
    /// A name without a token of the listener it came by.
    WrongToken, "wrong_token", "the name does not begin with a token of this listener";
    /// A name outside the prefix of the listener it came by.
    OutsidePrefix, "outside_prefix", "the metric name is outside the prefix of this listener";
    /// A name that the token of its sender may not write.
    OutsideToken, "outside_token", "the metric name is outside the prefixes and tags of the sender's token";
    /// A point beyond the rate of the listener or the token it came by.
    TooManyPoints, "too_many_points", "more points a second arrive by this listener or token than it takes (points_per_second)";
    /// A new metric beyond the limit on metrics, in all or of a prefix.
    TooManyMetrics, "too_many_metrics", "the metric is new, and there are as many metrics as the limits allow";
    /// A new metric beyond the limit on new metrics a minute, in all or of a prefix.
    TooManyNewMetrics, "too_many_new_metrics", "the metric is new, and as many were created in this minute as the limits allow";
    /// A point beyond the quota of its branch for this minute.
    OverQuota, "over_quota", "more points a minute come for this branch of names than its quota takes (limits.quotas)";
    /// A point of a metric that was being deleted for as long as a batch waits for that.
    BeingDeleted, "being_deleted", "the metric is being deleted, which takes long; send the point again";
    /// A new metric beyond the memory for names.
    NamesFull, "names_full", "the metric is new, and the memory for names is full (ingest.names_limit)";
}

impl std::fmt::Display for RejectReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.sentence())
    }
}

impl From<NameError> for RejectReason {
    fn from(error: NameError) -> RejectReason {
        match error {
            NameError::Empty => RejectReason::NameEmpty,
            NameError::TooLong => RejectReason::NameTooLong,
            NameError::TooManyComponents => RejectReason::NameTooManyComponents,
            NameError::ControlCharacter => RejectReason::NameControlCharacter,
            NameError::NotUtf8 => RejectReason::NotUtf8,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_a_name_of_its_own_and_its_place_in_all() {
        for (i, reason) in RejectReason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, i);
            assert_eq!(RejectReason::ALL.iter().filter(|other| other.name() == reason.name()).count(), 1);
            assert!(reason.name().bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_'));
        }
    }

    #[test]
    fn the_limits_in_the_sentences_are_the_limits() {
        assert!(RejectReason::LineTooLong.to_string().contains(&crate::MAX_LINE_BYTES.to_string()));
        for error in [NameError::Empty, NameError::TooLong, NameError::TooManyComponents, NameError::ControlCharacter] {
            assert_eq!(RejectReason::from(error).to_string(), error.to_string());
        }
    }
}
