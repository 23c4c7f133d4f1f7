//! Why a page of an answer could not be read.

/// Columns or bytes that none of our statements asks for.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Undecodable {
    #[error(transparent)]
    Columns(#[from] scylla::response::query_result::RowsError),
    #[error(transparent)]
    Row(#[from] scylla::deserialize::DeserializationError),
    #[error(transparent)]
    Run(#[from] codec::Damaged),
}
