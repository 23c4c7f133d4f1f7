//! A server as the user writes it on the command line.

use std::{path::PathBuf, str::FromStr};

/// A server and what the user knows of it.
#[derive(Debug, Clone, Default)]
pub(crate) struct ServerSpec {
    pub(crate) name: String,
    pub(crate) line: Option<String>,
    pub(crate) http: Option<String>,
    pub(crate) pid: Option<u32>,
    pub(crate) stores: Vec<u32>,
    pub(crate) disk: Option<PathBuf>,
    pub(crate) flush: Option<String>,
    /// Metrics to read back to know when points are stored.
    pub(crate) readable: u64,
}

impl FromStr for ServerSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<ServerSpec, String> {
        let (name, fields) = text.split_once('=').ok_or("must be NAME=line:ADDR,http:ADDR,…")?;
        let mut spec = ServerSpec { name: name.to_owned(), ..ServerSpec::default() };
        for field in fields.split(',') {
            let (key, value) = field.split_once(':').ok_or_else(|| format!("{field} must be KEY:VALUE"))?;
            let value = value.to_owned();
            let pid = || value.parse().map_err(|_| format!("{key} must be a process number, got {value}"));
            match key {
                "line" => spec.line = Some(value),
                "http" => spec.http = Some(value),
                "pid" => spec.pid = Some(pid()?),
                "store" => spec.stores.push(pid()?),
                "disk" => spec.disk = Some(value.into()),
                "flush" => spec.flush = Some(value),
                "readable" => {
                    spec.readable =
                        value.parse().map_err(|_| format!("readable must be a number of metrics, got {value}"))?;
                }
                _ => return Err(format!("{key} must be line, http, pid, store, disk, flush or readable")),
            }
        }
        if 0 < spec.readable && spec.http.is_none() {
            return Err("readable needs http:ADDR, where points are read".into());
        }
        Ok(spec)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_one_argument() {
        let spec: ServerSpec =
            "a=line:127.0.0.1:2003,http:http://127.0.0.1:8080/x,pid:7,disk:/d".parse().expect("a valid server");
        assert_eq!((spec.name.as_str(), spec.line.as_deref()), ("a", Some("127.0.0.1:2003")));
        assert_eq!((spec.http.as_deref(), spec.pid), (Some("http://127.0.0.1:8080/x"), Some(7)));
        assert!("a=lines:x".parse::<ServerSpec>().is_err());
        assert!("a=pid:x".parse::<ServerSpec>().is_err());
        assert!("a".parse::<ServerSpec>().is_err());
    }

    #[test]
    fn a_server_may_have_several_store_processes_and_metrics_to_read_back() {
        let spec: ServerSpec = "a=line:l,http:h,store:8,store:9,readable:50".parse().expect("a valid server");
        assert_eq!((spec.stores, spec.readable), (vec![8, 9], 50));
        assert!("a=line:l,store:x".parse::<ServerSpec>().is_err());
        assert!("a=line:l,http:h,readable:-1".parse::<ServerSpec>().is_err());
        assert!("a=line:l,readable:50".parse::<ServerSpec>().is_err(), "there is no address to read from");
    }
}
