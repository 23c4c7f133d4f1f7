//! The struct of a group of keys, from a list of key, kind, default and documentation.

/// The struct of a group of keys.
macro_rules! group {
    ($Group:ident { $( $(#[doc = $doc:literal])+ $key:ident: $kind:ty = $default:literal; )+ }) => {
        #[doc = concat!("The keys of `", stringify!($Group), "`.")]
        #[derive(Debug, Clone)]
        pub struct $Group {
            $( $(#[doc = $doc])+ pub $key: $kind, )+
        }

        impl Default for $Group {
            fn default() -> $Group {
                $Group {
                    $( $key: <$kind as Kind>::read($default).expect("a default is a valid value"), )+
                }
            }
        }
    };
}

pub(super) use group;
