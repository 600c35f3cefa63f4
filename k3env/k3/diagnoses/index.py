"""What it means when an index of packages, or a directory of wheels, does not give what pip asks for."""

from __future__ import annotations

from k3env.k3.diagnoses.diagnosis import BY_PIP, EGRESS, Diagnosis

NOT_FOUND = r"\(from versions: none\)|No matching distribution found for"
PIP_CERT = "set PIP_CERT to the site's certificate bundle in the task's environment"
INDEX = (
    Diagnosis(
        "pip.ca_file",
        r"Could not find a suitable TLS CA certificate bundle|invalid path: \S+\.(pem|crt)",
        "the file of certificates that pip is told to use is not there",
        "mend PIP_CERT, REQUESTS_CA_BUNDLE or SSL_CERT_FILE: they must name a file that is on this node, and in the "
        "container",
        "encode/httpx#1007; requests, adapters.py",
        near=BY_PIP,
    ),
    Diagnosis(
        "pip.certificate",
        r"CERTIFICATE_VERIFY_FAILED|certificate verify failed"
        r"|problem confirming the ssl certificate(?!.*(EOF|Connection|timed out|SSL module))",
        "the index's certificate is not trusted here",
        PIP_CERT,
        "pip's own words",
        near=BY_PIP,
    ),
    Diagnosis(
        "pip.certificate_untrusted",
        r"Retrying \(Retry\(.*(CERTIFICATE_VERIFY_FAILED|certificate verify failed)",
        "the index's certificate is not trusted here",
        PIP_CERT,
        "pip's own words: a warning for each try, then an index without versions; #106",
        also=NOT_FOUND,
    ),
    Diagnosis(
        "pip.proxy",
        r"Cannot connect to proxy|ProxyError|Tunnel connection failed|407 Proxy Authentication",
        "the proxy does not let us through",
        "see https_proxy, http_proxy and no_proxy in the task's environment, and what the proxy allows",
        "pip's own words",
        near=BY_PIP,
        passes=True,
    ),
    Diagnosis(
        "pip.network",
        r"Failed to establish a new connection|Temporary failure in name resolution|Name or service not known"
        r"|Network is unreachable|Max retries exceeded|NewConnectionError|ConnectTimeoutError|Read timed out"
        r"|IncompleteRead|incomplete-download|^(pip\S*|urllib3\S*|.*ProtocolError)\(?.*Connection (aborted|broken)",
        "the package index is out of reach",
        f"{EGRESS}; offline, set no_index and find_links",
        "pip's own words",
        near=BY_PIP,
        passes=True,
    ),
    Diagnosis(
        "pip.proxy_down",
        r"Retrying \(Retry\(.*ProxyError",
        "the proxy does not answer, or does not let us through",
        "see https_proxy, http_proxy and no_proxy in the task's environment, and what the proxy allows",
        "pip's own words: a warning for each try, then an index without versions",
        also=NOT_FOUND,
    ),
    Diagnosis(
        "pip.untrusted",
        r"is not a trusted or secure host and is being ignored",
        "pip takes no index over plain http",
        "name it by https, or set PIP_TRUSTED_HOST in the task's environment",
        "pip's own words",
        also=r"No matching distribution found for",
    ),
    Diagnosis(
        "pip.bad_wheel",
        r"Wheel '.*' located at .* is invalid|BadZipFile|has an invalid wheel",
        "a wheel is damaged: a download or a copy was cut off",
        "remove it where it lies, or set no_cache, and fetch it anew",
        "pip's own words",
        near=BY_PIP,
    ),
    Diagnosis(
        "pip.unreachable",
        r"Retrying \(Retry\(.*(NewConnectionError|ConnectTimeoutError|ReadTimeoutError|Read timed out"
        r"|RemoteDisconnected|ConnectionResetError|ProtocolError|SSLEOFError|SSLError|ConnectionError)",
        "the package index does not answer, or something on the way cuts the connection",
        f"{EGRESS}; offline, set no_index and find_links",
        "pip's own words: a warning for each try, then an index without versions; #1236",
        also=NOT_FOUND,
    ),
    Diagnosis(
        "pip.wheelhouse",
        r"Location '.*' is ignored: it is (neither a file nor a directory|either a non-existing path)",
        "a directory of wheels is not there",
        "see find_links, and that the node, or the container, sees that path",
        "pip's own words",
        also=r"No matching distribution found for",
    ),
    Diagnosis(
        "pip.index_busy",
        r"\b(429 Client|50\d Server) Error",
        "the package index is overloaded, or limits us",
        "run it again later, or name a mirror: index_url",
        "pip's own words",
        near=BY_PIP,
        passes=True,
    ),
)
