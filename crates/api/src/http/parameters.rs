//! Parameters of a request: the query string, then the form body, merged as in Django.

use bytes::Bytes;
use http_body_util::{BodyDataStream, Full};
use hyper::{HeaderMap, header};

use super::rejection::Rejection;
use crate::encode::python;

/// Names with values in the order of the request: first the query string's, then the body's.
#[derive(Debug, Default, Clone, PartialEq)]
pub(crate) struct Parameters(Vec<(String, String)>);

/// Parameters of one request. Each takes some dozens of bytes, however short it is.
const MAX_PARAMETERS: usize = 20_000;

/// Bytes of a form that is read at once. A longer one takes milliseconds, and is read on a thread that may block.
const SHORT_FORM: usize = 64 << 10;

impl Parameters {
    /// Reads a query string and a form body, URL-encoded or multipart. A body of another type is ignored, as in
    /// Django; a body without a type counts as URL-encoded.
    pub async fn read(query: Option<&str>, headers: &HeaderMap, body: Bytes) -> Result<Parameters, Rejection> {
        Ok(Parameters::read_telling(query, headers, body).await?.0)
    }

    /// As [`Parameters::read`], and refuses a body that is ignored there, or a file in it: a request that changes something must
    /// be understood whole.
    pub async fn read_whole(query: Option<&str>, headers: &HeaderMap, body: Bytes) -> Result<Parameters, Rejection> {
        match Parameters::read_telling(query, headers, body).await? {
            (params, true) => Ok(params),
            (_, false) => {
                let text =
                    "the body must be a form: application/x-www-form-urlencoded, or multipart/form-data without files";
                Err(Rejection::Request(text.to_owned()))
            }
        }
    }

    /// Reads them, and tells whether nothing was ignored.
    async fn read_telling(
        query: Option<&str>,
        headers: &HeaderMap,
        body: Bytes,
    ) -> Result<(Parameters, bool), Rejection> {
        let mut params = Parameters::default();
        params.urlencoded(query.unwrap_or_default().as_bytes())?;
        if body.is_empty() {
            return Ok((params, true));
        }
        if let Some(coding) =
            headers.get(header::CONTENT_ENCODING).filter(|coding| !coding.as_bytes().eq_ignore_ascii_case(b"identity"))
        {
            return Err(Rejection::Packed(String::from_utf8_lossy(coding.as_bytes()).into_owned()));
        }
        let content_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let (kind, _) = content_type.split_once(';').unwrap_or((content_type, ""));
        match kind.trim().to_ascii_lowercase().as_str() {
            "" | "application/x-www-form-urlencoded" if body.len() <= SHORT_FORM => params.urlencoded(&body)?,
            "" | "application/x-www-form-urlencoded" => {
                let long = move || params.urlencoded(&body).map(|()| (params, true));
                return tokio::task::spawn_blocking(long).await.map_err(|_| Rejection::Broken)?;
            }
            "multipart/form-data" => {
                let is_whole = params.multipart(content_type, body).await?;
                return Ok((params, is_whole));
            }
            _ => return Ok((params, false)),
        }
        Ok((params, true))
    }

    fn urlencoded(&mut self, text: &[u8]) -> Result<(), Rejection> {
        for (name, value) in form_urlencoded::parse(text) {
            self.push(name.into_owned(), value.into_owned())?;
        }
        Ok(())
    }

    fn push(&mut self, name: String, value: String) -> Result<(), Rejection> {
        if self.0.len() == MAX_PARAMETERS {
            let text = format!("the request has more than {MAX_PARAMETERS} parameters; send several requests");
            return Err(Rejection::Request(text));
        }
        self.0.push((name, value));
        Ok(())
    }

    /// Tells whether nothing was ignored.
    async fn multipart(&mut self, content_type: &str, body: Bytes) -> Result<bool, Rejection> {
        let mut is_whole = true;
        let bad = |error: multer::Error| Rejection::Request(format!("the multipart body is invalid: {error}"));
        let boundary = multer::parse_boundary(content_type).map_err(bad)?;
        let mut form = multer::Multipart::new(BodyDataStream::new(Full::new(body)), boundary);
        while let Some(field) = form.next_field().await.map_err(bad)? {
            // A file is not a parameter, and neither is a part without a name.
            let name = field.name().filter(|_| field.file_name().is_none()).map(str::to_owned);
            let Some(name) = name else {
                is_whole = false;
                continue;
            };
            let value = field.bytes().await.map_err(bad)?;
            self.push(name, String::from_utf8_lossy(&value).into_owned())?;
        }
        Ok(is_whole)
    }

    /// Whether the request has the name, with any value.
    pub fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(known, _)| known == name)
    }

    /// The last value of a name.
    pub fn last(&self, name: &str) -> Option<&str> {
        self.0.iter().rev().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Every value of a name, in order.
    pub fn all<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Every pair, in order.
    pub fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Every pair, in order.
    pub fn into_pairs(self) -> Vec<(String, String)> {
        self.0
    }

    /// Whether the last value of a name is present and not empty: true in Python.
    pub fn truthy(&self, name: &str) -> bool {
        self.last(name).is_some_and(|value| !value.is_empty())
    }

    /// A whole number as Python's `int()` reads it, or `default` when the name is absent. The error is Python's.
    pub fn int(&self, name: &str, default: i64) -> Result<i64, String> {
        self.last(name).map_or(Ok(default), python::parse_int)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(query: &str, content_type: Option<&'static str>, body: &'static str) -> Result<Parameters, Rejection> {
        let mut headers = HeaderMap::new();
        if let Some(content_type) = content_type {
            headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static(content_type));
        }
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(Parameters::read(Some(query), &headers, Bytes::from_static(body.as_bytes())))
    }

    #[test]
    fn a_form_is_appended_to_the_query_string() {
        let params = read("target=a&from=1", Some("application/x-www-form-urlencoded"), "target=b&from=2").unwrap();
        assert_eq!(params.all("target").collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(params.last("from"), Some("2"));
        assert!(!params.has("until"));
    }

    #[test]
    fn a_form_body_may_contain_unencoded_globs() {
        let params = read("", Some("application/x-www-form-urlencoded"), "query=servers.{a,b}.*").unwrap();
        assert_eq!(params.last("query"), Some("servers.{a,b}.*"));
    }

    #[test]
    fn a_multipart_body_gives_parameters_but_no_files() {
        let body = "--x\r\nContent-Disposition: form-data; name=\"target\"\r\n\r\na.*\r\n--x\r\nContent-Disposition: \
                    form-data; name=\"f\"; filename=\"f\"\r\n\r\nzz\r\n--x\r\nContent-Disposition: form-data; \
                    name=\"target\"\r\n\r\nb\r\n--x--\r\n";
        let params = read("target=0", Some("multipart/form-data; boundary=x"), body).unwrap();
        assert_eq!(params.all("target").collect::<Vec<_>>(), ["0", "a.*", "b"]);
        assert!(!params.has("f"));
        let whole = |content_type: &'static str, body: &'static str| {
            let headers =
                HeaderMap::from_iter([(header::CONTENT_TYPE, header::HeaderValue::from_static(content_type))]);
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            runtime.block_on(Parameters::read_whole(None, &headers, Bytes::from_static(body.as_bytes())))
        };
        assert!(whole("multipart/form-data; boundary=x", body).is_err());
        assert!(whole("application/json", "{\"target\": \"a\"}").is_err());
        assert!(whole("application/x-www-form-urlencoded", "target=a").is_ok());
        assert!(read("", Some("multipart/form-data; boundary=x"), "garbage").is_err());
        assert!(read("", Some("multipart/form-data"), "garbage").is_err());
    }
}
