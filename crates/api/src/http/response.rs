//! Heads of answers, and short answers.

use hyper::{
    HeaderMap, StatusCode,
    header::{self, HeaderValue},
};

use hyper::body::Body as _;

use super::{
    body::{Body, Response},
    client::Client,
    memory::MemoryBudget,
    rejection::Rejection,
};

/// Answers up to this size are not counted: `http.max_connections` bounds them.
pub(crate) const FREE_ANSWER_BYTES: usize = 16 << 10;

/// Status and headers of an answer whose body follows.
pub(crate) type Head = hyper::Response<()>;

/// A head with status 200.
pub(crate) fn head(content_type: &'static str) -> Head {
    let mut head = Head::new(());
    set(head.headers_mut(), content_type);
    head
}

/// The head of an answer to `/metrics/...`, which caches must not keep.
pub(crate) fn uncached_head(content_type: &'static str) -> Head {
    let mut head = head(content_type);
    head.headers_mut().insert(header::PRAGMA, HeaderValue::from_static("no-cache"));
    head.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    head
}

/// A short answer.
pub(crate) fn short(status: StatusCode, content_type: &'static str, body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    set(response.headers_mut(), content_type);
    response
}

/// The same answer, whose bytes count as memory of answers until the client has read them.
pub(crate) async fn counted(response: Response, budget: &MemoryBudget, client: &Client) -> Result<Response, Rejection> {
    let bytes = response.body().size_hint().exact().unwrap_or(0);
    let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
    if bytes <= FREE_ANSWER_BYTES {
        return Ok(response);
    }
    let mut share = budget.share(client);
    share.raise(bytes).await?;
    Ok(response.map(|body| Body::stream(body.holding(share))))
}

fn set(headers: &mut HeaderMap, content_type: &'static str) {
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
}
