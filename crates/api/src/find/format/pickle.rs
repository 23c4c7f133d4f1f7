//! `format=pickle`: graphite-web asks a remote server for this. An interval is a plain tuple, which every reader accepts
//! without a class.

use std::borrow::Cow;

use super::contract::{FindFormat, FindOptions};
use crate::{encode::pickle, find::nodes::Nodes};

/// The format.
struct Pickle {
    options: FindOptions,
}

/// Makes the format.
pub(super) fn make(options: FindOptions) -> Box<dyn FindFormat> {
    Box::new(Pickle { options })
}

impl FindFormat for Pickle {
    fn content_type(&self) -> &'static str {
        "application/pickle"
    }

    fn pattern(&self) -> Cow<'_, str> {
        self.options.pattern.as_str().into()
    }

    fn write(&self, nodes: &Nodes<'_>, out: &mut Vec<u8>) {
        pickle::begin(out);
        pickle::list(out, |out| {
            for node in nodes.by_name() {
                pickle::dict(out, |out| {
                    pickle::text(out, "path");
                    pickle::text(out, node.path);
                    pickle::text(out, "is_leaf");
                    pickle::boolean(out, node.is_leaf);
                    if node.is_leaf {
                        pickle::text(out, "intervals");
                        pickle::list(out, |out| {
                            pickle::int(out, 0);
                            pickle::int(out, self.options.now);
                            pickle::pair(out);
                        });
                    }
                });
            }
        });
        pickle::end(out);
    }
}
