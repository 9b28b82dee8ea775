"""The options of `voice loadtest` together, and the load test that they make."""

from dataclasses import dataclass
from pathlib import Path

from yarl import URL

from ops.call.access import Access, AccessError, Auth, access
from ops.loadtest import options
from ops.loadtest.drivers import Api
from ops.loadtest.endpoint import Endpoint
from ops.loadtest.inputs import PASSAGE
from ops.loadtest.options import OptionError
from ops.loadtest.price import usd_per_hour
from ops.loadtest.scenarios import Scenario
from ops.loadtest.session import LoadTest
from ops.loadtest.summary import Slo


@dataclass(frozen=True, kw_only=True)
class Asked:
    """Every option, as typed."""

    url: str
    api: Api | None
    model: str
    scenario: str | None
    concurrency: str | None
    rate: str | None
    requests: int | None
    audio: list[Path] | None
    text: Path | None
    reference: Path | None
    sample_rate: int
    body: str
    slo: list[str] | None
    baseline: str | None
    names: str | None
    rounds: int
    instance_type: str | None
    region: str | None
    price: float | None
    gpus: int
    auth: Auth | None
    api_key_env: str | None
    timeout: float
    warmup: int
    seed: int

    def load_test(self) -> LoadTest:
        """Check the options and return the load test.

        Raises:
            OptionError, InputFileError, PriceError: One of them cannot be used.
        """
        scenario = options.scenario_of(self.scenario)
        api = self._api(scenario)
        rounds = self.rounds if self.baseline else 1
        loads = options.loads_of(self.concurrency, self.rate, scenario)
        slo = options.slo_of(self.slo or [], scenario)
        usd, price = self._price()
        return LoadTest(
            api=api,
            endpoints=self._endpoints(scenario),
            driver=options.driver_maker(
                api,
                audio=self.audio or [],
                text=self.text,
                reference=self.reference,
                sample_rate=self.sample_rate,
                scenario=scenario,
            ),
            loads={load: options.requests_of(self.requests, load, rounds) for load in loads},
            slo=slo,
            gpus=self.gpus,
            usd_per_hour=usd,
            scenario=scenario,
            rounds=rounds,
            warmup=self.warmup,
            timeout_s=self.timeout,
            seed=self.seed,
            setup=self._setup(slo, price),
        )

    def _setup(self, slo: Slo, price: str) -> dict[str, str]:
        """Return what was asked, as far as a reader of the report has to know it."""
        text = str(self.text) if self.text else f"passages of {len(PASSAGE)} characters"
        voice = f", voice of {self.reference}" if self.reference else ""
        return {
            "input": ", ".join(map(str, self.audio)) if self.audio else text + voice,
            "further fields": self.body,
            "SLO": ", ".join(f"{name} at most {limit:g}" for name, limit in slo.items()) or "none",
            "price": price,
            "GPUs": str(self.gpus),
            "seed": str(self.seed),
        }

    def _api(self, scenario: Scenario | None) -> Api:
        if scenario is None:
            if self.api is None:
                raise OptionError(f"give --api ({', '.join(Api)}) or --scenario")
            if self.api is Api.SESSION and self.model:
                raise OptionError("--model is not for session: what transcribes stands in the deployment file")
            return self.api
        if self.api not in {None, Api.SPEECH}:
            raise OptionError(f"--scenario {self.scenario} drives speech, not {self.api}")
        if scenario.needs_baseline and not self.baseline:
            measured, baseline = scenario.names
            raise OptionError(f"--scenario {self.scenario} compares {measured} with {baseline}: give --baseline URL")
        return Api.SPEECH

    def _endpoints(self, scenario: Scenario | None) -> list[Endpoint]:
        body = options.body_of(self.body)
        measured, baseline = options.names_of(self.names, scenario)
        places = [(measured, options.url_of(self.url, "URL"))]
        if self.baseline:
            places.append((baseline, options.url_of(self.baseline, "--baseline")))
        return [Endpoint(name, url, self.model, body, self._access(url)) for name, url in places]

    def _access(self, url: URL) -> Access:
        if self.api is not Api.SESSION and self.auth:
            raise OptionError(f"--auth is for session: {self.api or 'a scenario'} takes a key as OpenAI's API does")
        key = options.api_key(self.api_key_env)
        try:
            # To an OpenAI-compatible endpoint a key is a bearer token.
            bearer = Auth.JWT if key and self.api is not Api.SESSION else self.auth
            return access(bearer, key, str(url))
        except AccessError as error:
            raise OptionError(str(error)) from None

    def _price(self) -> tuple[float | None, str]:
        if self.price is not None and self.instance_type:
            raise OptionError("--usd-per-hour and --instance-type are two prices; give one of them")
        if self.instance_type:
            return usd_per_hour(self.instance_type, self.region, self.gpus)
        return (None, "not given") if self.price is None else (self.price, f"{self.price:g} USD an hour")
