//! carbonapi's messages of version 3. The field numbers are those of go-graphite/protocol.

use crate::{
    encode::protobuf::{Damaged, Fields, Value, read_text},
    http::Rejection,
};

/// One entry of a `MultiFetchRequest`.
#[derive(Debug, Default, PartialEq)]
pub(super) struct FetchRequest {
    /// A name, a glob or a whole `seriesByTag(...)` call.
    pub name: String,
    /// The path expression in the user's target, which identifies the series in the answer.
    pub path_expression: String,
    /// Begin of the time span, Unix seconds.
    pub start: i64,
    /// End of the time span, Unix seconds.
    pub stop: i64,
}

/// Reads a `MultiFetchRequest`. Filter functions and `maxDataPoints` are ignored: the capabilities offer neither, and
/// carbonapi does both itself.
pub(super) fn read_fetches(message: &[u8]) -> Result<Vec<FetchRequest>, Damaged> {
    let mut all = Vec::new();
    for field in Fields::of(message) {
        let (1, Value::Bytes(message)) = field? else { continue };
        let mut request = FetchRequest::default();
        for field in Fields::of(message) {
            match field? {
                (1, Value::Bytes(text)) => request.name = read_text(text)?,
                (2, Value::Int(time)) => request.start = time,
                (3, Value::Int(time)) => request.stop = time,
                (5, Value::Bytes(text)) => request.path_expression = read_text(text)?,
                _ => {}
            }
        }
        if request.path_expression.is_empty() {
            request.path_expression.clone_from(&request.name);
        }
        all.push(request);
    }
    Ok(all)
}

/// Reads the texts of a `MultiGlobRequest` or a `MultiMetricsInfoRequest`, which both have in their first field.
pub(super) fn read_names(message: &[u8]) -> Result<Vec<String>, Damaged> {
    let mut names = Vec::new();
    for field in Fields::of(message) {
        if let (1, Value::Bytes(text)) = field? {
            names.push(read_text(text)?);
        }
    }
    Ok(names)
}

/// The rejection of a body that is not a valid `message`.
pub(super) fn invalid(message: &'static str) -> impl FnOnce(Damaged) -> Rejection {
    move |error| Rejection::Request(format!("the body is not a valid {message} of carbonapi_v3_pb: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encode::protobuf;

    #[test]
    fn a_fetch_without_a_path_expression_is_identified_by_its_name() {
        let mut one = Vec::new();
        protobuf::text(&mut one, 1, "a.*");
        protobuf::int(&mut one, 2, 60);
        protobuf::int(&mut one, 3, 120);
        let mut two = one.clone();
        protobuf::text(&mut two, 5, "{a,b}.*");
        protobuf::int(&mut two, 7, 300);
        let mut message = Vec::new();
        protobuf::bytes(&mut message, 1, &one);
        protobuf::bytes(&mut message, 1, &two);
        let request = |path_expression: &str| FetchRequest {
            name: "a.*".to_owned(),
            path_expression: path_expression.to_owned(),
            start: 60,
            stop: 120,
        };
        assert_eq!(read_fetches(&message), Ok(vec![request("a.*"), request("{a,b}.*")]));
        assert_eq!(read_fetches(&message[..message.len() - 1]), Err(Damaged));
    }
}
